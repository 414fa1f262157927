//! The harness of `cargo xtask bench prog`: what it measures is the right answer to every frame.

use router_tests::bench::cases::Case;
use router_tests::bench::interpreter::Interpreter;
use router_tests::bench::world::{Size, World};
use router_tests::need_bpf;
use router_tests::prog_run::action;
use router_tests::prog_run::replay::{Replay, Target};

/// Each case is answered as the oracle says, and each frame comes to the program as it was prepared, whatever the run
/// before has made of the packet.
#[test]
fn bpf_replayed_frames_are_restored_and_answered() {
    if !need_bpf() {
        return;
    }
    let world = World::new(Size { names: 400, prefixes: 1000 }).expect("a world");
    let datapath = world.datapath().expect("it loads");
    let mut interpreter = Interpreter::new(&datapath).expect("the object and its maps");
    for case in Case::ALL {
        let queries = case.queries(&world, 64).expect("queries");
        queries.verify(datapath.program()).expect("right answers");
        let frames = &queries.frames;
        let mut lens: Vec<usize> = frames.iter().map(Vec::len).collect();
        lens.sort_unstable();
        lens.dedup();
        assert!(lens.len() > 1 || case.name.contains("200"), "{}: frames of one length", case.name);
        let mut replay = Replay::new(datapath.program(), frames).expect("a replay");
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(replay.one(Target::Empty, number, 0).expect("it transmits"), *frame, "{}", case.name);
        }
        // A repeated run takes the kernel some 25 ms to prepare.
        for (number, before) in [(63, 62)] {
            let reply = replay.one(Target::Program, number, before).expect("it transmits");
            queries.check(number, &reply).expect("the right answer to the last of several");
        }
        for number in [0, 7, 63] {
            let took = interpreter.run(&frames[number]).expect("it is interpreted");
            assert_eq!(took.action, action::TX, "{}", case.name);
            queries.check(number, &took.frame).expect("the right answer, one instruction after the other");
            assert!((200..10_000).contains(&took.instructions), "{}: {took:?}", case.name);
        }
        let answered = datapath.counter(case.counter()).expect("a counter");
        replay.time(Target::Empty, 3, 1000).expect("it runs");
        assert_eq!(datapath.counter(case.counter()).expect("a counter"), answered);
        replay.time(Target::Program, 3, 1000).expect("it runs");
        assert_eq!(datapath.counter(case.counter()).expect("a counter"), answered + 1000, "{}", case.name);
    }
}
