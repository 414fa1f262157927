//! The datapath: start, adoption, replacement, reload, change, detachment; on veth pairs and by
//! `BPF_PROG_TEST_RUN`.

mod interfaces;
mod reports;
mod tallies;

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use router_common::abi::{
    ABI_VERSION, Answer, Cell, Credit, Generation, INLINE_NAME, Interface, LocationEntry, LocationWord,
    MAX_ADDRESSES, MAX_INTERFACES, MAX_VLANS, NAME_WORDS, NONE, Owner, Pick,
};
use router_common::compile::locations;
use router_common::diff::Operation;
use router_common::lookup::{hash_name, slot};
use router_common::tables::Tables;
use router_tests::need_bpf;
use router_tests::netns::{Namespace, Pair, mounts_of_bpffs, need_netns};
use router_userspace::datapath::{self, Capacity, Datapath, Error, Mode, Options, Start};
use router_userspace::settings::{Stale, XdpMode};

const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// `www.example.` in wire form.
const NAME: &[u8] = b"\x03www\x07example\x00";

/// Tables that answer `www.example. A` with one address, for any client.
fn tables(address: [u8; 4]) -> Tables {
    let mut words = [0u64; NAME_WORDS];
    let mut name = [0; INLINE_NAME];
    name[..NAME.len()].copy_from_slice(NAME);
    for (word, octets) in words.iter_mut().zip(name.chunks_exact(8)) {
        *word = u64::from_le_bytes(octets.try_into().expect("eight octets"));
    }
    let hash = hash_name(&SEED, &words, NAME.len() as u32);
    let mut owners = vec![Owner::EMPTY; 16];
    owners[slot(hash, 0, 16) as usize] = Owner {
        hash,
        first_answer: 0,
        partition: NONE,
        wildcard: NONE,
        name_len: NAME.len() as u8,
        zone_len: 9,
        flags: 0,
        name,
    };
    let mut ipv4 = [[0; 4]; MAX_ADDRESSES];
    ipv4[0] = Pair::SERVER_ADDRESSES[0].parse::<Ipv4Addr>().expect("an address").octets();
    Tables {
        generation: Generation {
            seed: SEED,
            serial: 0,
            owners: 0,
            owner_slots: 16,
            buckets: 0,
            bucket_count: 1,
            regions: 0,
            answers: 0,
            cells: 0,
            lines: 0,
            tallies: 0,
            locations: 0,
            location_roots: [LocationWord::from_entry(LocationEntry::default()); 2],
            edns_size: 1232,
            flags: 0,
            ipv4_count: 1,
            ipv6_count: 0,
            vlan_count: 0,
            interface_count: 0,
            ipv4,
            ipv6: [[0; 16]; MAX_ADDRESSES],
            vlans: [0; MAX_VLANS],
            interfaces: [Interface::default(); MAX_INTERFACES],
        },
        owners,
        buckets: vec![0],
        regions: vec![0; 4],
        answers: vec![Answer::new(0, 1, Pick::Random, 0), Answer::new(0, 1, Pick::Random, 0)],
        cells: vec![cell(address)],
        lines: Vec::new(),
        credits: vec![Credit::EMPTY],
        locations: Vec::new(),
    }
}

/// A cell that is always taken, with one A record of TTL 30.
fn cell(address: [u8; 4]) -> Cell {
    let mut record = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 0, 0, 0, 0];
    record[12..].copy_from_slice(&address);
    let mut sum: u32 =
        record.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut cell =
        Cell { threshold: 0, alias: 0, sum: sum as u16, kind: Cell::RECORDS, ancount: 1, ..Cell::EMPTY };
    cell.len = record.len() as u16;
    cell.piece[..record.len()].copy_from_slice(&record);
    cell
}

/// The same tables with so many cells that they outgrow the room made for the small ones.
fn grown(address: [u8; 4], room: &Capacity) -> Tables {
    let mut tables = tables(address);
    tables.cells.resize(room.cells as usize + 1, Cell::EMPTY);
    tables
}

fn options<'a>(interfaces: &'a [String], pin_dir: &Path) -> Options<'a> {
    Options {
        interfaces,
        mode: XdpMode::Auto,
        pin_dir: pin_dir.to_owned(),
        stale: Stale::Serve,
        lease: Duration::from_secs(3600),
    }
}

fn server() -> Vec<String> {
    vec![Pair::SERVER.to_owned()]
}

/// A query for [`NAME`], type A.
fn query(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(NAME);
    message.extend([0, 1, 0, 1]);
    message
}

/// A client's socket, on the thread's namespace.
fn client() -> UdpSocket {
    let socket = UdpSocket::bind((Pair::CLIENT_ADDRESSES[0], 0)).expect("the client's address");
    socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    socket
}

/// Asks once; the address of the answer, or nothing.
fn ask(socket: &UdpSocket, id: u16) -> Option<[u8; 4]> {
    socket.send(&query(id)).ok()?;
    let mut answer = [0; 512];
    let len = socket.recv(&mut answer).ok()?;
    let answer = &answer[..len];
    assert_eq!(answer.get(..2), Some(id.to_be_bytes().as_slice()), "an answer to another query");
    assert_eq!(answer[6..8], [0, 1], "not one record: {answer:02x?}");
    answer[len - 4..].try_into().ok()
}

/// What XDP programs `ip` shows on an interface.
fn shown(namespace: &Namespace, interface: &str) -> String {
    let line = namespace.sh(&format!("ip -d link show {interface}"));
    line.lines().filter(|line| line.contains("xdp")).collect()
}

fn id_shown(namespace: &Namespace) -> String {
    let line = namespace.sh(&format!("ip -d link show {}", Pair::SERVER));
    let at = line.find("prog/xdp id ").expect("a program is attached");
    line[at + 12..].split(' ').next().unwrap_or_default().to_owned()
}

const FIRST: [u8; 4] = [192, 0, 2, 1];
const SECOND: [u8; 4] = [192, 0, 2, 2];
const THIRD: [u8; 4] = [192, 0, 2, 3];

#[test]
fn netns_answers_go_on_without_the_agent_and_the_next_adopts_them() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let pins = root.path().join("pins");
    let interfaces = server();
    let before = pair.server.run(|| {
        let (datapath, start) =
            Datapath::open(&options(&interfaces, &pins), &tables(FIRST)).expect("it opens");
        assert_eq!(start, Start::Fresh);
        assert_eq!(datapath.active_generation(), 1);
        assert_eq!(datapath.interfaces().len(), 1);
        assert_eq!(datapath.interfaces()[0].mode, Mode::Native);
        assert_eq!(datapath.interfaces()[0].why_not_native, None);
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST));
        // As SIGKILL does it: descriptors and mappings go, nothing else.
        datapath.keep();
        mounts_of_bpffs()
    });
    assert_eq!(pair.client.run(|| ask(&client(), 2)), Some(FIRST), "the answers stopped with the agent");
    pair.server.run(|| {
        let program = id_shown(&pair.server);
        let (datapath, start) =
            Datapath::open(&options(&interfaces, &pins), &tables(SECOND)).expect("it opens");
        assert_eq!(start, Start::Adopted);
        assert_eq!(id_shown(&pair.server), program, "the program was exchanged");
        assert_eq!(datapath.active_generation(), 2);
        assert_eq!(datapath.interfaces()[0].mode, Mode::Native);
        assert_eq!(pair.client.run(|| ask(&client(), 3)), Some(SECOND));
        let answers = datapath.counters().expect("counters")[0];
        assert_eq!(answers, 3, "the counters did not go on");
        assert_eq!(mounts_of_bpffs(), before, "mounted once more");
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
        assert_eq!(mounts_of_bpffs(), before - 1, "the mount is still there");
        // It was a mount point, perhaps in other namespaces too, and stays.
        let left = std::fs::read_dir(&pins).map_or(0, Iterator::count);
        assert_eq!(left, 0, "the pin directory is not empty");
    });
}

#[test]
fn netns_a_set_that_does_not_fit_is_replaced_in_the_link() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let options = options(&interfaces, root.path());
        let (datapath, _) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
        let room = datapath.capacity();
        let first = id_shown(&pair.server);
        datapath.keep();

        // Larger tables than there is room for.
        let (datapath, start) = Datapath::open(&options, &grown(SECOND, &room)).expect("it opens");
        let Start::Replaced(reason) = start else { panic!("{start:?}") };
        assert!(reason.contains("CELLS"), "{reason}");
        assert_ne!(first, id_shown(&pair.server));
        let larger = datapath.capacity();
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(SECOND));
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(SECOND));
        datapath.keep();
        assert_eq!(sets(root.path()).len(), 1, "the old set is still pinned");
        let (datapath, start) = Datapath::open(&options, &grown(THIRD, &larger)).expect("it opens");
        let Start::Replaced(_) = start else { panic!("{start:?}") };
        assert_eq!(
            datapath.counters().expect("counters")[0],
            2,
            "the counters of the same build did not go on"
        );
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(THIRD));
        let second = id_shown(&pair.server);
        datapath.keep();

        // Another build: a directory can be renamed on a bpffs.
        let set = sets(root.path()).remove(0);
        let renamed = set.with_file_name(format!("v{ABI_VERSION}-0000000000000001-7"));
        std::fs::rename(&set, &renamed).expect("it is renamed");
        let (datapath, start) = Datapath::open(&options, &tables(THIRD)).expect("it opens");
        assert!(matches!(&start, Start::Replaced(reason) if reason.contains("build")), "{start:?}");
        assert_ne!(id_shown(&pair.server), second);
        assert_eq!(pair.client.run(|| ask(&client(), 2)), Some(THIRD));
        datapath.keep();

        // Another ABI.
        let set = sets(root.path()).remove(0);
        let name = set.file_name().and_then(|name| name.to_str()).expect("a name").replacen(
            &format!("v{ABI_VERSION}-"),
            "v0-",
            1,
        );
        std::fs::rename(&set, set.with_file_name(name)).expect("it is renamed");
        let (datapath, start) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
        assert!(matches!(&start, Start::Replaced(reason) if reason.contains("ABI")), "{start:?}");
        datapath.keep();

        // Half the pins are gone.
        let set = sets(root.path()).remove(0);
        std::fs::remove_file(set.join("CELLS")).expect("it is there");
        let (datapath, start) = Datapath::open(&options, &tables(SECOND)).expect("it opens");
        assert!(matches!(&start, Start::Replaced(reason) if reason.contains("CELLS")), "{start:?}");
        datapath.keep();

        // The program's pin too, so that no set counts.
        let set = sets(root.path()).remove(0);
        std::fs::remove_file(set.join("xroute")).expect("it is there");
        let (datapath, start) = Datapath::open(&options, &tables(THIRD)).expect("it opens");
        assert!(matches!(&start, Start::Replaced(reason) if reason.contains("not pinned")), "{start:?}");
        assert_eq!(sets(root.path()).len(), 1);
        assert_eq!(pair.client.run(|| ask(&client(), 3)), Some(THIRD));
        datapath.detach().expect("it detaches");
        assert_eq!(shown(&pair.server, Pair::SERVER), "");
    });
}

/// The sets pinned in the only namespace below a pin directory.
fn sets(root: &Path) -> Vec<std::path::PathBuf> {
    let entries = |path: &Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
    };
    let mut namespaces = entries(root);
    // The kernel's own files have dots in their names.
    namespaces.retain(|path| !path.to_string_lossy().ends_with(".debug"));
    assert_eq!(namespaces.len(), 1, "{namespaces:?}");
    entries(&namespaces[0])
        .into_iter()
        .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("link-")))
        .collect()
}

#[test]
fn netns_no_query_is_lost_while_tables_outgrow_the_maps() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    let stop = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let (ready, started) = std::sync::mpsc::channel();
    let (pair, root, interfaces, stop, asked) = (&pair, &root, &interfaces, &stop, &asked);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            started.recv().ok()?;
            pair.client.run(|| {
                let socket = client();
                let mut last = None;
                let mut id = 0u16;
                while !stop.load(Ordering::Relaxed) {
                    id = id.wrapping_add(1);
                    let answer = ask(&socket, id).expect("a query was lost");
                    assert!([FIRST, SECOND, THIRD].contains(&answer), "{answer:?}");
                    assert!(last <= Some(answer), "{answer:?} after {last:?}");
                    last = Some(answer);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                last
            })
        });
        pair.server.run(move || {
            let stop = Raise(stop);
            let (mut datapath, _) =
                Datapath::open(&options(interfaces, root.path()), &tables(FIRST)).expect("it opens");
            ready.send(()).expect("the sender waits");
            wait(asked, 200);
            datapath.install(&tables(SECOND)).expect("it fits");
            wait(asked, 200);
            let large = grown(THIRD, &datapath.capacity());
            let program = id_shown(&pair.server);
            let refused = datapath.install(&large).expect_err("it does not fit");
            assert!(matches!(&refused, Error::OutOfRoom(room) if room.table == "CELLS"), "{refused}");
            assert_eq!(datapath.active_generation(), 2);
            datapath.replace(&large).expect("larger maps");
            assert_ne!(id_shown(&pair.server), program);
            assert_eq!(datapath.active_generation(), 3, "the generations did not go on");
            wait(asked, 200);
            drop(stop);
            assert_eq!(sender.join().expect("no query was lost"), Some(THIRD));
            let answers = datapath.counters().expect("counters")[0];
            assert_eq!(answers, asked.load(Ordering::Relaxed), "the counters did not go on");
            datapath.detach().expect("it detaches");
        });
    });
}

/// Raises a flag when it goes, also in a panic: what waits for it must end with the test.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until a count has grown by some.
fn wait(count: &AtomicU64, by: u64) {
    let from = count.load(Ordering::Relaxed);
    let patience = Instant::now() + Duration::from_secs(20);
    while count.load(Ordering::Relaxed) < from + by {
        assert!(Instant::now() < patience, "the sender stopped");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn netns_operations_change_the_next_answer() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let (mut datapath, _) =
            Datapath::open(&options(&interfaces, root.path()), &tables(FIRST)).expect("it opens");
        // Once in each half.
        for round in 0..2 {
            datapath.install(&tables(FIRST)).expect("it fits");
            assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST));
            let answer = Answer::new(5, 1, Pick::Random, 0);
            let applied = datapath
                .apply(&[
                    Operation::WriteCell { index: 5, cell: cell(SECOND) },
                    Operation::SetAnswer { index: 0, answer },
                ])
                .expect("it is applied");
            assert_eq!((applied.lines, applied.cells, applied.answers), (0, 1, 1));
            assert_eq!(pair.client.run(|| ask(&client(), 2)), Some(SECOND), "round {round}");
            datapath.grace();
            // Beyond the half there may be the other half: nothing of the batch is written.
            let index = datapath.capacity().cells;
            let refused = datapath
                .apply(&[
                    Operation::SetAnswer { index: 0, answer: Answer::new(0, 1, Pick::Random, 0) },
                    Operation::WriteCell { index, cell: cell(THIRD) },
                ])
                .expect_err("beyond the half");
            assert!(matches!(&refused, Error::OutOfRoom(room) if room.table == "CELLS"), "{refused}");
            assert_eq!(pair.client.run(|| ask(&client(), 3)), Some(SECOND));
        }
        datapath.detach().expect("it detaches");
    });
}

#[test]
fn netns_a_lapsed_lease_serves_or_passes_as_configured() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let mut options = options(&interfaces, root.path());
        options.lease = Duration::from_secs(60);
        options.stale = Stale::Pass;
        let (mut datapath, _) = Datapath::open(&options, &tables(FIRST)).expect("it opens");
        assert_eq!(pair.client.run(|| ask(&client(), 1)), Some(FIRST));
        datapath.renew_lease(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1300));
        assert_eq!(pair.client.run(|| ask(&client(), 2)), None, "answered after the lease");
        // Adopted with the old lease lapsed: the new one counts at once.
        datapath.keep();
        let adopted = Datapath::open(&options, &tables(SECOND)).expect("it opens");
        assert_eq!(adopted.1, Start::Adopted);
        datapath = adopted.0;
        assert_eq!(pair.client.run(|| ask(&client(), 3)), Some(SECOND));
        datapath.set_stale(Stale::Serve);
        datapath.renew_lease(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1300));
        assert_eq!(pair.client.run(|| ask(&client(), 4)), Some(SECOND));
        datapath.install(&tables(THIRD)).expect("it fits");
        assert_eq!(pair.client.run(|| ask(&client(), 5)), Some(THIRD), "the flag was lost with the reload");
        datapath.detach().expect("it detaches");
    });
}

/// Tables with a /24 for each location.
fn located(count: u32) -> Tables {
    let prefixes = (0..count).map(|i| {
        let entry = LocationEntry { location: i, scope: 24, ..LocationEntry::default() };
        (u128::from(i << 8) << 96, 24, entry)
    });
    let (lines, roots) = locations::table(prefixes.collect(), Vec::new()).expect("it fits");
    let mut tables = tables(FIRST);
    (tables.locations, tables.generation.location_roots) = (lines, roots);
    tables
}

#[test]
fn bpf_locations_that_outgrow_their_map_get_a_larger_one() {
    if !need_bpf() {
        return;
    }
    let small = located(1 << 10);
    let mut datapath = Datapath::unattached(&small, &Capacity::for_tables(&small), &[]).expect("it loads");
    let large = located(1 << 17);
    let refused = datapath.install(&large);
    assert!(matches!(&refused, Err(Error::OutOfRoom(room)) if room.table == "LOCATIONS"), "{refused:?}");
    assert_eq!(datapath.active_generation(), 1);
    datapath.replace(&large).expect("larger maps are made");
    for serial in 3..6 {
        datapath.install(&large).expect("it fits");
        assert_eq!(datapath.active_generation(), serial);
    }
}
