#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| router_tests::fuzz::zonefile(octets));
