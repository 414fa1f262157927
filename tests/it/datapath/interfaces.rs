//! The datapath and the interfaces it is on: modes, other programs, other agents, what a crash left.

use super::*;

#[test]
fn netns_an_interface_without_native_xdp_is_attached_generically_and_says_why() {
    if !need_netns() {
        return;
    }
    let namespace = Namespace::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = ["lo".to_owned()];
    namespace.run(|| {
        let mut options = options(&interfaces, root.path());
        let (datapath, _) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
        let loopback = &datapath.interfaces()[0];
        assert_eq!((loopback.name.as_str(), loopback.index, loopback.mac), ("lo", 1, [0; 6]));
        assert_eq!(loopback.mode, Mode::Generic);
        assert!(loopback.why_not_native.as_ref().is_some_and(|why| why.contains("driver")), "{loopback:?}");
        datapath.keep();

        options.mode = XdpMode::Native;
        let refused = Datapath::open(&options, &tables(FIRST)).map(drop).expect_err("it has no native XDP");
        assert!(format!("{refused:#}").contains("lo"), "{refused:#}");

        options.mode = XdpMode::Generic;
        let (datapath, _) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
        assert_eq!(datapath.interfaces()[0].why_not_native, None);
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&namespace, "lo"), "");
    });
}

#[test]
fn netns_the_mode_of_an_adopted_link_follows_the_configuration() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let mut options = options(&interfaces, root.path());
        for (asked, mode) in [
            (XdpMode::Auto, Mode::Native),
            (XdpMode::Generic, Mode::Generic),
            (XdpMode::Auto, Mode::Generic),
            (XdpMode::Native, Mode::Native),
        ] {
            options.mode = asked;
            let (datapath, start) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
            assert_eq!(datapath.interfaces()[0].mode, mode, "{asked:?}, {start:?}");
            assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST), "{asked:?}");
            datapath.keep();
        }
        assert_eq!(datapath::remove_leftovers(root.path()).expect("it is removed"), 1);
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
    });
}

#[test]
fn netns_somebody_elses_program_is_named_and_left_alone() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let (ours, theirs) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let interfaces = server();
    pair.server.run(|| {
        let (other, _) =
            Datapath::open(&options(&interfaces, theirs.path()), &tables(FIRST)).expect("it opens");
        let program = id_shown(&pair.server);
        let bpffs = mounts_of_bpffs();

        // Held by a link.
        let refused = Datapath::open(&options(&interfaces, ours.path()), &tables(SECOND))
            .map(drop)
            .expect_err("it is occupied");
        let message = format!("{refused:#}");
        for part in [Pair::SERVER, "native", "\"xroute\"", &program, "bpftool link detach id"] {
            assert!(message.contains(part), "{part} is missing: {message}");
        }
        assert_eq!(id_shown(&pair.server), program);
        assert_eq!(mounts_of_bpffs(), bpffs, "a mount was left");

        // Attached by netlink.
        let pinned = sets(theirs.path()).remove(0).join("xroute");
        let copy = theirs.path().join("copy");
        std::fs::hard_link(&pinned, &copy).expect("a second pin");
        other.detach().expect("it detaches");
        pair.server.sh(&format!("ip link set dev {} xdp pinned {}", Pair::SERVER, copy.display()));
        let refused = Datapath::open(&options(&interfaces, ours.path()), &tables(SECOND))
            .map(drop)
            .expect_err("it is occupied");
        let message = format!("{refused:#}");
        let remedy = format!("ip link set dev {} xdp off", Pair::SERVER);
        assert!(message.contains(&remedy), "{message}");
        // And the remedy is one.
        pair.server.sh(&remedy);
        let (datapath, start) =
            Datapath::open(&options(&interfaces, ours.path()), &tables(SECOND)).expect("it opens");
        assert_eq!(start, Start::Fresh);
        datapath.detach().expect("it detaches");
    });
}

#[test]
fn netns_two_agents_do_not_share_a_pin_directory() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let (first, _) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        let refused = Datapath::open(&options(&interfaces, root.path()), &tables(SECOND))
            .map(drop)
            .expect_err("it is taken");
        assert!(format!("{refused:#}").contains("another xroute agent"), "{refused:#}");
        assert!(datapath::remove_leftovers(root.path()).is_err(), "taken from under a running agent");
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST));
        first.keep();
        let left = datapath::leftovers(root.path()).expect("nobody runs");
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].program.to_string(), id_shown(&pair.server));
        assert_eq!(left[0].name.as_deref(), Some(Pair::SERVER));
        assert_eq!(datapath::remove_leftovers(root.path()).expect("it is removed"), 1);
        assert_eq!(datapath::leftovers(root.path()).expect("nothing"), []);
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
    });
}

#[test]
fn netns_interfaces_come_and_go_between_agents() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    pair.server.run(|| {
        pair.server.sh("ip link add xr2 type veth peer name xr3; ip link set xr2 up; ip link set xr3 up");
        let both = [Pair::SERVER.to_owned(), "xr2".to_owned()];
        let (datapath, _) =
            Datapath::open(&options(&both[..1], root.path()), &tables(FIRST)).expect("it opens");
        datapath.keep();
        let (datapath, start) =
            Datapath::open(&options(&both, root.path()), &tables(FIRST)).expect("it opens");
        assert_eq!(start, Start::Adopted);
        assert_eq!(datapath.interfaces().len(), 2);
        assert!(shown(&pair.server, "xr2").contains("xdp"));
        datapath.keep();

        // One that cannot be attached: what is there goes on, nothing new is left.
        let three = [both[0].clone(), both[1].clone(), "xr9".to_owned()];
        let refused =
            Datapath::open(&options(&three, root.path()), &tables(SECOND)).map(drop).expect_err("no xr9");
        assert!(format!("{refused:#}").contains("xr9"), "{refused:#}");
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST));

        // An interface that vanished with its link; its index is not reused here, its pin is removed.
        pair.server.sh("ip link del xr2");
        let (datapath, start) =
            Datapath::open(&options(&both[..1], root.path()), &tables(SECOND)).expect("it opens");
        assert_eq!(start, Start::Adopted);
        assert_eq!(pair.client.run(|| ask(&client(), 2)), Some(SECOND));
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
        assert_eq!(mounts_of_bpffs(), 0);
    });
}

#[test]
fn netns_an_interface_that_is_made_anew_is_attached_again() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let (mut datapath, _) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        assert!(!datapath.refresh().expect("nothing new"));
        // A new hardware address: frames to it pass until the next generation knows it.
        pair.server.sh(&format!("ip link set {} address 02:00:00:00:00:77", Pair::SERVER));
        assert_eq!(pair.client.run(|| ask(&client(), 1)), None);
        assert!(datapath.refresh().expect("it is there"));
        datapath.install(&tables(FIRST)).expect("it fits");
        assert_eq!(datapath.interfaces()[0].mac, [2, 0, 0, 0, 0, 0x77]);
        assert_eq!(pair.client.run(|| ask(&client(), 2)), Some(FIRST));

        pair.server.sh(&format!("ip link del {}", Pair::SERVER));
        assert!(!datapath.refresh().expect("it is away"));
        datapath.install(&tables(FIRST)).expect("no interface is needed for it");
        datapath.replace(&tables(SECOND)).expect("a link without interface is left out");
        // It comes back twice: with the index it had, because that is free, and with another one.
        let index = datapath.interfaces()[0].index;
        let mut pairs = Vec::new();
        for (round, taken) in ["", "ip link add xr8 index 2 type veth peer name xr9; "].iter().enumerate() {
            pair.server.sh(&format!("ip link del {} 2>/dev/null || true; {taken}", Pair::SERVER));
            let again = Pair::new();
            again.server.sh(&format!("ip link set {} netns {}", Pair::SERVER, pair.server.path()));
            pair.server.sh(&format!(
                "ip link set {0} up; ip addr add {1}/24 dev {0}",
                Pair::SERVER,
                Pair::SERVER_ADDRESSES[0]
            ));
            assert!(datapath.refresh().expect("it came back"), "round {round}");
            assert_eq!(datapath.interfaces()[0].index == index, round == 0);
            assert_eq!(datapath.interfaces()[0].mode, Mode::Native);
            datapath.install(&tables(THIRD)).expect("it fits");
            assert_eq!(again.client.run(|| ask(&client(), 3)), Some(THIRD), "round {round}");
            assert!(!datapath.refresh().expect("it is there"), "round {round}");
            pairs.push(again);
        }
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
        assert_eq!(mounts_of_bpffs(), 0);
    });
}

#[test]
fn netns_a_jumbo_mtu_and_a_name_with_a_dot_are_no_obstacle() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    pair.server.run(|| {
        pair.client.sh(&format!("ip link set {} mtu 9000", Pair::CLIENT));
        pair.server.sh(&format!("ip link set {} mtu 9000", Pair::SERVER));
        pair.server.sh("ip link add xr.5 type veth peer name xr6");
        let interfaces = [Pair::SERVER.to_owned(), "xr.5".to_owned()];
        let (datapath, _) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        let modes: Vec<Mode> = datapath.interfaces().iter().map(|interface| interface.mode).collect();
        assert_eq!(modes, [Mode::Native, Mode::Native]);
        assert_eq!(datapath.interfaces()[1].name, interfaces[1]);
        datapath.keep();
        let (datapath, start) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        assert_eq!(start, Start::Adopted);
        let modes: Vec<Mode> = datapath.interfaces().iter().map(|interface| interface.mode).collect();
        assert_eq!(modes, [Mode::Native, Mode::Native]);
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, &interfaces[1]), "");
    });
}

#[test]
fn netns_what_a_crash_left_half_made_is_redone() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let (datapath, _) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        datapath.keep();
        // Killed after pinning, before the link: a set that nothing holds, and one half pinned.
        let set = sets(root.path()).remove(0);
        let link = std::fs::read_dir(set.parent().expect("a parent"))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("link-")))
            .expect("a link");
        std::fs::remove_file(link).expect("it is removed");
        assert_eq!(shown(&pair.server, Pair::SERVER), "", "the pin held the link");
        let half = set.with_file_name(format!("v{ABI_VERSION}-0000000000000001-9"));
        std::fs::create_dir(&half).expect("it is made");
        std::fs::hard_link(set.join("CELLS"), half.join("CELLS")).expect("a pin");

        let (datapath, start) =
            Datapath::open(&options(&interfaces, root.path()), &tables(SECOND)).expect("it opens");
        assert_eq!(start, Start::Fresh);
        assert_eq!(sets(root.path()).len(), 1, "leftovers were not removed");
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(SECOND));
        datapath.detach().expect("it detaches");
    });
}

#[test]
fn netns_pins_go_where_a_bpffs_is_or_to_one_of_our_own() {
    if !need_netns() {
        return;
    }
    let namespace = Namespace::new();
    let interfaces = ["lo".to_owned()];
    namespace.run(|| {
        namespace.sh("mount -t tmpfs none /run; ! mountpoint -q /sys/fs/bpf || umount /sys/fs/bpf");
        let own = datapath::default_directory();
        assert_eq!(own, Path::new("/run/xroute/bpf"));
        let (datapath, _) = Datapath::open(&options(&interfaces, &own), &tables(FIRST)).expect("it opens");
        datapath.keep();
        // What an earlier agent left wins over what was mounted since.
        namespace.sh("mount -t bpf none /sys/fs/bpf");
        assert_eq!(datapath::default_directory(), own);
        let (datapath, start) =
            Datapath::open(&options(&interfaces, &own), &tables(FIRST)).expect("it opens");
        assert_eq!(start, Start::Adopted);
        datapath.detach().expect("it detaches");
        assert_eq!(mounts_of_bpffs(), 1, "our own mount stayed");

        let shared = datapath::default_directory();
        assert_eq!(shared, Path::new("/sys/fs/bpf/xroute"));
        let (datapath, _) = Datapath::open(&options(&interfaces, &shared), &tables(FIRST)).expect("it opens");
        assert_eq!(mounts_of_bpffs(), 1, "mounted although there was one");
        datapath.detach().expect("it detaches");
        assert!(!shared.exists());
        assert_eq!(mounts_of_bpffs(), 1, "a mount that is not ours went");
        assert_eq!(shown(&namespace, "lo"), "");
    });
}

/// A second agent takes the first one's pins over and ends early, however far it came; the first takes everything back.
#[test]
fn netns_what_another_agent_took_over_is_taken_back() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let mut options = options(&interfaces, root.path());
        let (mut first, _) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
        let answered = |id| pair.client.run(|| ask(&client(), id));
        let lend = |first: &Datapath| first.lend().expect("a descriptor").expect("it is pinned");

        // It goes on with the same maps.
        let (second, start) =
            Datapath::inherit(&options, &tables(SECOND), lend(&first)).expect("it takes over");
        assert_eq!((start, answered(1)), (Start::Adopted, Some(SECOND)));
        drop(second);
        first.reclaim(&tables(FIRST)).expect("taken back");
        assert_eq!(answered(2), Some(FIRST));

        // It makes others, and removes those of the first.
        let large = grown(SECOND, &first.capacity());
        let (second, start) = Datapath::inherit(&options, &large, lend(&first)).expect("it takes over");
        assert!(matches!(start, Start::Replaced(_)), "{start:?}");
        assert_eq!(answered(3), Some(SECOND));
        drop(second);
        first.reclaim(&tables(FIRST)).expect("taken back");
        assert_eq!((answered(4), sets(root.path()).len()), (Some(FIRST), 1));

        // It attaches in another mode, and to another interface.
        let both = [Pair::SERVER.to_owned(), "lo".to_owned()];
        options.mode = XdpMode::Generic;
        options.interfaces = &both;
        let (second, _) = Datapath::inherit(&options, &tables(SECOND), lend(&first)).expect("it takes over");
        assert_ne!(shown(&pair.server, "lo"), "");
        drop(second);
        first.reclaim(&tables(THIRD)).expect("taken back");
        assert_eq!((answered(5), first.interfaces()[0].mode), (Some(THIRD), Mode::Native));
        assert_eq!(shown(&pair.server, "lo"), "");

        // It is refused, and nothing has changed.
        let nowhere = ["nowhere0".to_owned()];
        options.interfaces = &nowhere;
        Datapath::inherit(&options, &tables(SECOND), lend(&first)).map(drop).expect_err("no such interface");
        assert_eq!(answered(6), Some(THIRD));
        first.install(&tables(FIRST)).expect("it works as ever");
        assert_eq!(answered(7), Some(FIRST));
        options.interfaces = &interfaces;
        Datapath::open(&options, &tables(SECOND)).map(drop).expect_err("the lock was kept");
        first.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
    });
}

#[test]
fn netns_packets_from_broadcast_addresses_are_left_to_the_kernel_as_addresses_change() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    // The client may send from what is a broadcast address on the other side.
    let [client_address, broadcast] = [Pair::CLIENT_ADDRESSES[0], "10.77.0.255"];
    pair.client.sh(&format!(
        "ip addr flush dev {0}; for own in {client_address} {broadcast} 10.77.0.127; do ip addr add $own/32 dev {0}; done
         ip route add {1} dev {0} src {client_address}",
        Pair::CLIENT,
        Pair::SERVER_ADDRESSES[0],
    ));
    let ask_from = |source: &str| {
        pair.client.run(|| {
            let socket = UdpSocket::bind((source, 0)).expect("an address of the client");
            socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            ask(&socket, 1)
        })
    };
    pair.server.run(|| {
        let (mut datapath, _) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        let martians = |datapath: &Datapath| {
            datapath.counters().expect("counters")[router_common::counter::Counter::PassMartian as usize]
        };
        assert_eq!(ask_from(client_address), Some(FIRST));
        assert_eq!((ask_from(broadcast), martians(&datapath)), (None, 1));
        assert_eq!((ask_from("10.77.0.127"), martians(&datapath)), (Some(FIRST), 1));

        // Another network, and one address more, which the client has too.
        pair.server.sh(&format!(
            "ip addr add {0}/25 dev {1}; ip addr del {0}/24 dev {1}; ip addr add {client_address}/32 dev lo",
            Pair::SERVER_ADDRESSES[0],
            Pair::SERVER
        ));
        assert!(!datapath.refresh().expect("it is there"), "no new generation is needed for addresses");
        assert_eq!((ask_from("10.77.0.127"), martians(&datapath)), (None, 2));
        assert_eq!((ask_from(client_address), martians(&datapath)), (None, 3));
        assert_eq!((ask_from(broadcast), martians(&datapath)), (Some(FIRST), 3));

        // Tables that need larger maps.
        let room = datapath.capacity();
        datapath.replace(&grown(SECOND, &room)).expect("it is exchanged");
        assert_eq!((ask_from("10.77.0.127"), martians(&datapath)), (None, 4));
        assert_eq!(ask_from(broadcast), Some(SECOND));
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
    });
}
