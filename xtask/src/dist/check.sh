# Arguments: an empty directory, a package, and the same package in a later version. Runs in namespaces of its own
# (mount, net, pid), which take everything with them.
place=$1 first=$2 second=$3

mount --make-rprivate /
mount -t tmpfs -o mode=755 xroute-dist "$place"
mkdir "$place/upper" "$place/work" "$place/root" "$place/packages"
cp "$first" "$place/packages/first.deb"
cp "$second" "$place/packages/second.deb"
mount -t overlay xroute-dist -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$place/root"
root=$place/root
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t bpf bpf "$root/sys/fs/bpf"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
cp "$place"/packages/*.deb "$root/tmp"
ip link set lo up
ip link add xr0 type veth peer name xr1
ip link set xr0 up
ip link set xr1 up

step() {
    echo "- $*"
}
fail() {
    echo "FAILED: $*" >&2
    [ ! -f "$place/log" ] || cat "$place/log" >&2
    exit 1
}
in_root() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}
answers() { # within ten seconds, this
    want=$1
    shift
    for _ in $(seq 50); do
        got=$(dig +short +time=1 +tries=1 "$@" 2>/dev/null | sort | head -1) || true
        [ "$got" != "$want" ] || return 0
        sleep 0.2
    done
    fail "dig $* gives '$got', not '$want'"
}
start() {
    # As the unit does.
    command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/xroute.service")
    (exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C chroot "$root" $command) >"$place/log" 2>&1 &
    agent=$!
    for _ in $(seq 100); do
        ! grep -q 'serving DNS' "$place/log" || return 0
        sleep 0.2
    done
    fail "the agent does not start"
}
stop() {
    kill "$agent"
    wait "$agent" || fail "the agent ended badly"
}

in_root dpkg --status xroute >/dev/null 2>&1 && fail "xroute is installed on this machine: the check cannot tell what is left"

step install
in_root dpkg --install /tmp/first.deb >"$place/log" 2>&1 || fail "dpkg --install"
[ "$(in_root dpkg-query -W -f '${Status} ${Version}' xroute)" = "install ok installed 0.0.1-1" ] || fail "not installed"
in_root getent group xroute >/dev/null || fail "no group xroute"
[ -L "$root/etc/systemd/system/multi-user.target.wants/xroute.service" ] || fail "the service is not enabled"
in_root dpkg --verify xroute || fail "dpkg --verify"
in_root xroute check 2>"$place/log" || fail "the configuration that is installed is not valid"
[ ! -s "$place/log" ] || fail "the configuration that is installed has warnings"
! command -v systemd-analyze >/dev/null || in_root systemd-analyze verify xroute.service 2>"$place/log" || fail "systemd-analyze verify"

SOA='ns1.example.com. hostmaster.example.com. 1 3600 600 604800 60'

step run
start
answers "$SOA" @127.0.0.1 -p 5300 gslb.example.com SOA
answers "$SOA" @127.0.0.1 -p 5300 +tcp gslb.example.com SOA
dig +short @127.0.0.1 -p 5300 www.gslb.example.com A | grep -q '^192\.0\.2\.[12]0$' || fail "no address is answered"
in_root xroute status | grep -q '^generation' || fail "no status"
[ "$(stat -c %G "$root/run/xroute/control.sock")" = "$(in_root getent group xroute | cut -d: -f3)" ] ||
    [ "$(in_root stat -c %G /run/xroute/control.sock)" = xroute ] || fail "the control socket is not the group's"
in_root xroute doctor >"$place/log" || fail "the doctor finds a failure"

step change the configuration and upgrade
sed -i 's/^interfaces .*/interfaces = ["xr0"] # of the administrator/' "$root/etc/xroute/xroute.toml"
in_root dpkg --install /tmp/second.deb >"$place/log" 2>&1 || fail "dpkg --install of the next version"
[ "$(in_root dpkg-query -W -f '${Version}' xroute)" = 0.0.2-1 ] || fail "not upgraded"
grep -q 'of the administrator' "$root/etc/xroute/xroute.toml" || fail "the upgrade took the administrator's configuration"
answers "$SOA" @127.0.0.1 -p 5300 gslb.example.com SOA
stop
start
answers "$SOA" @127.0.0.1 -p 5300 gslb.example.com SOA
ip -d link show xr0 | grep -q xdp || fail "the agent did not attach to the interface of the new configuration"
stop
ip -d link show xr0 | grep -q xdp || fail "the unit's command does not leave the fast path attached"

step remove
in_root dpkg --remove xroute >"$place/log" 2>&1 || fail "dpkg --remove"
[ ! -e "$root/usr/bin/xroute" ] || fail "the program is left"
grep -q 'of the administrator' "$root/etc/xroute/xroute.toml" || fail "removing took the configuration"
! ip -d link show xr0 | grep -q xdp || fail "the fast path goes on without the package"
[ ! -e "$root/sys/fs/bpf/xroute" ] || fail "pins are left"

step purge
in_root dpkg --purge xroute >"$place/log" 2>&1 || fail "dpkg --purge"
! in_root dpkg --status xroute >/dev/null 2>&1 || fail "dpkg still knows it"
! in_root getent group xroute >/dev/null || fail "the group is left"
# What the file system in memory holds now is what was changed; a character device there is a file that was removed.
left=$(find "$place/upper" -iname '*xroute*' ! -type c; ls -d "$root"/run/xroute "$root"/sys/fs/bpf/xroute 2>/dev/null || true)
[ -z "$left" ] || fail "left behind: $left"
