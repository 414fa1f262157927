//! What was counted goes over into the next generation, into larger maps, and to the next agent.

use router_common::abi::{Credit, endpoint_hash};

use super::*;

/// Answers so far with `www/a` by the tables of [`counting`], and when the last one's TTL ends.
fn counted(datapath: &Datapath) -> (u64, u64) {
    let tallies = datapath.tallies().expect("they are read");
    let name = endpoint_hash("www", "a");
    let of = |totals: &datapath::Totals| totals.get(&name).copied().unwrap_or_default();
    let (folded, live) = (of(&tallies.folded), of(&tallies.live));
    (folded.answers + live.answers, folded.until.max(live.until))
}

/// Tables whose answer is credited to `www/a` with this TTL.
fn counting(mut tables: Tables, ttl: u32) -> Tables {
    let mut credit = Credit { ttl, count: 1, ..Credit::EMPTY };
    credit.names[0] = endpoint_hash("www", "a");
    tables.credits = vec![Credit::EMPTY, credit];
    tables.cells[0].detail = 1;
    tables
}

#[test]
fn netns_tallies_go_over_generations_maps_and_agents() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a directory");
    let interfaces = server();
    pair.server.run(|| {
        let options = options(&interfaces, root.path());
        let first = counting(tables(FIRST), 3600);
        let (mut datapath, _) = Datapath::open(&options, &first).expect("it opens");
        let ask_times = |count: u16| {
            (0..count).for_each(|id| assert!(pair.client.run(|| ask(&client(), id)).is_some()));
        };
        assert_eq!(counted(&datapath).0, 0);
        ask_times(3);
        let (answers, until) = counted(&datapath);
        assert_eq!(answers, 3);
        let left = until - datapath::monotonic();
        assert!((3590..=3600).contains(&(left / 1_000_000_000)), "{left} ns");

        // Another generation, with a shorter TTL: the longer one counts.
        datapath.install(&counting(tables(SECOND), 10)).expect("it fits");
        ask_times(2);
        assert_eq!(counted(&datapath), (5, until));
        // A credit that is new in a generation begins at zero, whatever its place was used for before.
        let mut other = Credit { ttl: 1, count: 1, ..Credit::EMPTY };
        other.names[0] = endpoint_hash("www", "b");
        let applied = datapath.apply(&[
            Operation::WriteCredit { index: 2, credit: other },
            Operation::WriteCell { index: 9, cell: Cell { detail: 2, ..cell(THIRD) } },
            Operation::SetAnswer { index: 0, answer: Answer::new(9, 1, Pick::Random, 0) },
        ]);
        assert_eq!(applied.expect("it is applied").credits, 1);
        ask_times(4);
        let live = datapath.tallies().expect("they are read").live;
        assert_eq!(live[&endpoint_hash("www", "b")].answers, 4);
        assert_eq!(counted(&datapath).0, 5);
        let index = datapath.capacity().tallies;
        let beyond = datapath.apply(&[Operation::WriteCredit { index, credit: other }]);
        assert!(matches!(beyond, Err(Error::OutOfRoom(_))));

        // Larger maps.
        datapath.replace(&counting(grown(FIRST, &datapath.capacity()), 10)).expect("larger maps");
        ask_times(1);
        assert_eq!(counted(&datapath), (6, until));

        // Another agent: what the maps hold, and not what it knows already.
        let before = datapath.tallies().expect("they are read");
        datapath.keep();
        let tables = counting(grown(FIRST, &Capacity::for_tables(&tables(FIRST))), 10);
        let (datapath, start) =
            Datapath::open_after(&options, &tables, before.marks.clone(), None).expect("it opens");
        assert_eq!(start, Start::Adopted);
        assert_eq!(counted(&datapath).0, 1, "the last generation of the agent before");
        let after = datapath.tallies().expect("they are read");
        assert!(after.marks.contains(&before.mark.expect("one serves")));
        ask_times(2);
        assert_eq!(counted(&datapath).0, 3);
        let (detached, last) = datapath.detach_and_count();
        detached.expect("it detaches");
        let last = last.expect("they are read");
        assert_eq!(last.live[&endpoint_hash("www", "a")].answers, 2);
    });
}
