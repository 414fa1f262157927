use std::collections::BTreeMap;

use super::*;
use crate::config::{self, Config, Files};

const TEXT: &str = r#"
include = ["more/*.toml"]
[server]
listen = ["192.0.2.53:53"]
[latency]
table = "/LATENCY"
[[zone]]
name = "gslb.test"
soa = { mname = "ns1.gslb.test.", rname = "h.gslb.test.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns1.example.net."]
"#;
const MORE: &str = "[[profile]]\nname = \"www\"\nnames = [\"www.gslb.test\"]\nmethod = \"performance\"\nttl = 30\n\
                    monitor = \"off\"\n[[profile.endpoint]]\nname = \"eu\"\naddress = [\"192.0.2.1\"]\nregion = \"eu\"\n";

/// A configuration in memory whose latency table is on the disk.
fn read(ttl: u32, latency: &Path) -> (Config, Recording) {
    let latency = latency.to_str().expect("text");
    let files: BTreeMap<String, Vec<u8>> = [
        ("/etc/x/xroute.toml".to_owned(), TEXT.replace("/LATENCY", latency)),
        ("/etc/x/more/www.toml".to_owned(), MORE.replace("ttl = 30", &format!("ttl = {ttl}"))),
        (latency.to_owned(), std::fs::read_to_string(latency).expect("readable")),
    ]
    .into_iter()
    .map(|(path, text)| (path, text.into_bytes()))
    .collect();
    let recorder = Recorder::new(&files);
    let config = config::load_from(Path::new("/etc/x/xroute.toml"), &recorder).expect("valid");
    let recording = recorder.recording(&config);
    (config, recording)
}

fn record(what: &str) -> Record {
    Record {
        version: 0,
        at: 1_700_000_000,
        who: Who::agent(),
        what: what.to_owned(),
        reason: Some("because".to_owned()),
        config: PathBuf::from("/etc/x/xroute.toml"),
        summary: None,
        zones: 1,
        profiles: 1,
        names: 1,
        endpoints: 1,
        files: Vec::new(),
    }
}

struct Place {
    folder: tempfile::TempDir,
    latency: PathBuf,
    store: Store,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let latency = folder.path().join("latency.csv");
    std::fs::write(&latency, "10.0.0.0/8,eu,5\n").expect("writable");
    let store = Store::new(&folder.path().join("state"));
    Place { folder, latency, store }
}

#[test]
fn what_is_kept_is_the_same_configuration_again() {
    let Place { folder, latency, store } = place();
    assert_eq!((store.list(), store.newest()), (Vec::new(), None));
    let (config, recording) = read(30, &latency);
    store.keep(7, record("reload"), &recording).expect("kept");
    let kept = store.load(7).expect("sound");
    assert_eq!(kept.record().digest(), recording.digest());
    let names: Vec<&Path> = kept.record().files.iter().map(|file| file.path.as_path()).collect();
    assert_eq!(names, [Path::new("/etc/x/xroute.toml"), &latency, Path::new("/etc/x/more/www.toml")]);
    assert_eq!(kept.record().files[1].content, None, "a data file is not kept");
    let again = config::load_from(Path::new("/etc/x/xroute.toml"), &kept).expect("valid");
    assert_eq!(again, config);
    assert!(kept.changed_since().is_empty() && kept.stamp(&latency).is_some());

    // A data file is read as it is now, and it is said that it changed.
    std::fs::write(&latency, "10.0.0.0/8,eu,6\n").expect("writable");
    let kept = store.load(7).expect("sound");
    let again = config::load_from(Path::new("/etc/x/xroute.toml"), &kept).expect("valid");
    assert_ne!(again.latency, config.latency);
    assert_eq!(kept.changed_since(), std::slice::from_ref(&latency));
    // Nothing else is read from the disk, and nothing that was not there then.
    assert!(Files::read(&kept, Path::new("/etc/hostname")).is_err());
    let (_, other) = read(31, &latency);
    assert_ne!(other.digest(), recording.digest());
    let (_, data) = read(30, &latency);
    assert_eq!(data.digest(), recording.digest(), "data files do not make another configuration");
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let place = folder.path().join("state/generations/7");
    assert_eq!((mode(&place), mode(&place.join("file-0"))), (0o700, 0o600));
}

#[test]
fn ten_are_kept_and_a_damaged_one_is_told_of() {
    let Place { folder, latency, store } = place();
    let (_, recording) = read(30, &latency);
    for number in 1..=12 {
        store.keep(number, record("reload"), &recording).expect("kept");
    }
    let numbers = |store: &Store| store.list().iter().map(|entry| entry.number).collect::<Vec<_>>();
    assert_eq!(numbers(&store), [12, 11, 10, 9, 8, 7, 6, 5, 4, 3]);
    let place = folder.path().join("state/generations");
    // One was cut off, one has lost a file, one has another content, one is of another version.
    let cut = std::fs::read(place.join("11/generation.json")).expect("readable");
    std::fs::write(place.join("11/generation.json"), &cut[..cut.len() / 2]).expect("writable");
    std::fs::remove_file(place.join("10/file-2")).expect("there");
    std::fs::write(place.join("9/file-0"), "something else").expect("writable");
    let other = String::from_utf8(cut).expect("text").replace("\"version\": 1", "\"version\": 9");
    std::fs::write(place.join("8/generation.json"), other).expect("writable");
    let why = |number| store.load(number).err().expect("damaged");
    assert!(why(11).starts_with("generation.json: "), "{}", why(11));
    assert!(why(10).starts_with("file-2, of /etc/x/more/www.toml, cannot be read: "), "{}", why(10));
    assert_eq!(why(9), "file-0, of /etc/x/xroute.toml, is not what was written");
    assert_eq!(why(8), "generation.json: format 9 is not 1, that of this version");
    // What a crash left aside counts as nothing and goes with the next.
    std::fs::create_dir(place.join(".new-13")).expect("made");
    std::fs::write(place.join(".new-13/file-0"), "half").expect("writable");
    assert_eq!(store.newest(), Some(12));
    store.keep(13, record("reload"), &recording).expect("kept");
    assert!(!place.join(".new-13").exists());
    // Those without a record that can be read do not take the place of sound ones.
    assert_eq!(numbers(&store), [13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3]);
    for number in 14..=25 {
        store.keep(number, record("reload"), &recording).expect("kept");
    }
    assert_eq!(numbers(&store), (16..=25).rev().collect::<Vec<_>>());
}

#[test]
fn what_is_held_is_remembered() {
    let Place { folder: _folder, store, latency } = place();
    assert_eq!(store.held().expect("readable"), None);
    store.hold(None).expect("nothing to remove");
    let (_, recording) = read(30, &latency);
    store.keep(3, record("apply"), &recording).expect("kept");
    let held = Held { generation: 3, is: "/etc/xroute/new.toml".into(), file: "ab".into() };
    store.hold(Some(&held)).expect("written");
    assert_eq!(store.held().expect("readable"), Some(held));
    store.renumber(3, 9).expect("renamed");
    assert_eq!(store.newest(), Some(9));
    store.hold(None).expect("removed");
    assert_eq!(store.held().expect("readable"), None);
}
