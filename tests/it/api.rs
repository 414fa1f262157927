//! The API of a running agent: what it replies, to whom, and what it bears.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use router_tests::agent::{Agent, binary, eventually};
use router_tests::http::{self, Reply};
use router_tests::netns::{Pair, need_netns};
use router_tests::packet::Query;
use serde_json::{Value, json};
use tempfile::TempDir;

mod hostile;
mod refused;

/// Where status page and metrics are, in the server's namespace.
const HTTP: &str = "127.0.0.1:8053";
const PATIENCE: Duration = Duration::from_secs(30);

/// Names that a page must not take for markup. (A profile's name has no `/`.)
const PROFILE: &str = "<script>alert(1)<script>";
const ENDPOINT: &str = "\"><img src=x onerror='alert(2)'>";

/// Two profiles; what the second probes says something odd.
fn configuration(folder: &Path, server: &str) -> String {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    format!(
        r#"[server]
interfaces = ["xr0"]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "control.sock"
http = "{HTTP}"
state_dir = "{folder}/state"
{server}
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600

[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "priority"
ttl = 10
monitor = "off"
  [[profile.endpoint]]
  name = "eu1"
  address = ["192.0.2.1"]
  [[profile.endpoint]]
  name = "us1"
  address = ["192.0.2.2"]

[[profile]]
name = {profile}
names = ["odd.gslb.test"]
method = "priority"
ttl = 10
  [profile.monitor]
  protocol = "http"
  port = 8080
  path = "/"
  interval = "1s"
  timeout = "500ms"
  sample_size = 1
  successful_samples = 1
  [[profile.endpoint]]
  name = {endpoint}
  address = ["127.0.0.2"]
"#,
        folder = folder.display(),
        profile = json!(PROFILE),
        endpoint = json!(ENDPOINT),
    )
}

/// An agent in namespaces of its own.
struct Setting {
    pair: Pair,
    folder: TempDir,
    agent: Agent,
}

impl Setting {
    /// `None` where there can be none.
    fn new(server: &str) -> Option<Self> {
        if !need_netns() {
            return None;
        }
        let pair = Pair::new();
        let folder = tempfile::tempdir().expect("a folder");
        let text = configuration(folder.path(), server);
        std::fs::write(folder.path().join("xroute.toml"), text).expect("the folder is writable");
        let agent = Agent::start(&pair.server, folder.path(), &[]);
        Some(Self { pair, folder, agent })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    fn control(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn http(&self) -> io::Result<TcpStream> {
        self.pair.server.run(|| {
            let stream = TcpStream::connect(HTTP)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        })
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        http::exchange(self.control().expect("a connection"), method, path, body).expect("a reply")
    }

    fn ask_http(&self, method: &str, path: &str) -> Reply {
        http::exchange(self.http().expect("a connection"), method, path, "").expect("a reply")
    }

    /// Address that `www` is answered with by the fast path, or octets of whatever else; `None` without a reply.
    fn dig(&self, name: &str, rtype: u16) -> Option<Vec<u8>> {
        self.pair.client.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
            socket.connect((Pair::SERVER_ADDRESSES[0], 53)).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            socket.send(&Query::new(name, rtype).bytes()).ok()?;
            let mut reply = [0; 512];
            let len = socket.recv(&mut reply).ok()?;
            Some(reply[..len].to_vec())
        })
    }

    fn www(&self) -> Option<[u8; 4]> {
        self.dig("www.gslb.test", 1)?.last_chunk().copied()
    }
}

#[test]
fn netns_replies_are_as_the_document_says() {
    let Some(setting) = Setting::new("") else { return };
    let document: Value =
        serde_json::from_str(&setting.ask("GET", "/v1/openapi.json", "").body).expect("JSON");
    assert_eq!(
        document,
        serde_json::from_str::<Value>(&setting.ask_http("GET", "/v1/openapi.json").body).expect("JSON")
    );
    let disable = json!({"targets": ["www/eu1"], "setting": {"status": "disabled"}, "seconds": 600, "reason": "a test"});
    let weight = json!({"targets": ["www/eu1"], "setting": {"weight": 5}});
    let asked = [
        ("POST", "/v1/overrides", disable.to_string(), 200),
        ("GET", "/v1/overrides", String::new(), 200),
        ("GET", "/v1/status", String::new(), 200),
        ("GET", "/v1/explain?name=www.gslb.test&client=198.51.100.1", String::new(), 200),
        (
            "GET",
            "/v1/explain?name=gslb.test&type=SOA&client=2001:db8::1&ecs=192.0.2.0/24",
            String::new(),
            200,
        ),
        ("GET", "/v1/map?address=198.51.100.1", String::new(), 200),
        ("GET", "/metrics", String::new(), 200),
        ("GET", "/", String::new(), 200),
        ("GET", "/v1/openapi.json", String::new(), 200),
        ("POST", "/v1/overrides", weight.to_string(), 422),
        ("POST", "/v1/overrides", String::from("{\"targets\": 1}"), 400),
        ("POST", "/v1/overrides", String::from("]"), 400),
        ("POST", "/v1/overrides/clear", json!({"targets": ["*"]}).to_string(), 200),
        ("POST", "/v1/overrides/clear", json!({"targets": ["*"]}).to_string(), 422),
        ("POST", "/v1/reload", String::from("null"), 200),
        ("POST", "/v1/plan", String::from("{}"), 200),
        ("POST", "/v1/plan", json!({"file": "/x", "generation": 1}).to_string(), 422),
        ("POST", "/v1/apply", json!({"reason": "a test"}).to_string(), 200),
        ("POST", "/v1/rollback", String::from("{}"), 422),
        ("GET", "/v1/generations", String::new(), 200),
        ("GET", "/v1/explain?name=a..b&client=::1", String::new(), 400),
        ("GET", "/v1/map", String::new(), 400),
        ("GET", "/v2/status", String::new(), 404),
        ("PUT", "/v1/status", String::new(), 405),
    ];
    // And whatever else there is to look at without saying what.
    let mut asked: Vec<(&str, &str, String, u16)> = asked.into();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let is_json = item["get"]["responses"]["200"]["content"]["application/json"].is_object();
        let parameters = item["get"]["parameters"].as_array();
        let bare = parameters.is_none_or(|all| all.iter().all(|one| one["required"] != true));
        if is_json && bare && !asked.iter().any(|(method, known, ..)| *method == "GET" && known == path) {
            asked.push(("GET", path, String::new(), 200));
        }
    }
    let mut replies = Vec::new();
    for (method, path, body, status) in asked {
        let reply = setting.ask(method, path, &body);
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        let kind = reply.field("content-type").to_owned();
        replies.push(
            json!({"method": method, "path": path, "status": status, "type": kind, "body": reply.body}),
        );
        let route = path.split('?').next().unwrap_or(path);
        if method == "GET" && document["paths"][route]["get"]["tags"][0] == "look" {
            let reply = setting.ask_http(method, path);
            assert_eq!(reply.status, status, "{method} {path} at http: {reply:?}");
        }
    }
    for path in ["/v1/reload", "/v1/overrides/clear"] {
        assert_eq!(setting.ask_http("POST", path).status, 404, "nothing can be changed at http");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("api/check_replies.py");
    let mut python = std::process::Command::new(router_tests::python::having("jsonschema"))
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let given = json!({"document": document, "replies": replies}).to_string();
    python.stdin.take().expect("a pipe").write_all(given.as_bytes()).expect("read");
    let output = python.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(" 0 mistakes"), "{said}");
    let kinds: usize = said.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(kinds >= 22, "{said}");
    setting.agent.terminate();
}

/// Answers probes with a status line that no page must show as it is.
fn odd_endpoint(setting: &Setting) -> TcpListener {
    setting.pair.server.run(|| TcpListener::bind("127.0.0.2:8080").expect("a free port"))
}

#[test]
fn netns_the_status_page_shows_what_is_and_runs_nothing() {
    let Some(setting) = Setting::new("") else { return };
    let listener = odd_endpoint(&setting);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            // The prober may be gone.
            let _ = stream.write_all(b"HTTP/1.1 <script>alert(3)</script> \x1b[2J\r\n\r\n");
        }
    });
    let disable =
        json!({"targets": ["www/us1"], "setting": {"status": "disabled"}, "reason": "<b onclick=x>\u{202e}"});
    assert_eq!(setting.ask("POST", "/v1/overrides", &disable.to_string()).status, 200);
    eventually("a failed probe on the page", || setting.ask_http("GET", "/").body.contains("last error"));
    std::fs::write(setting.folder.path().join("xroute.toml"), "<script>alert(4)</script>").expect("writable");
    assert_eq!(setting.ask("POST", "/v1/reload", "null").status, 422);

    let page = setting.ask_http("GET", "/");
    assert_eq!(page.status, 200);
    assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
    assert!(
        page.field("content-security-policy").starts_with("default-src 'none'; style-src 'sha256-"),
        "{page:?}"
    );
    assert_eq!(page.field("x-content-type-options"), "nosniff");
    for words in [
        "<th>generation<td>2, loaded",
        "xr0, XDP",
        "eu1",
        "www.gslb.test.",
        "&lt;script&gt;alert(1)&lt;script&gt;",
        "&quot;&gt;&lt;img src=x onerror=&#39;alert(2)&#39;&gt;",
        "by root",
        "&lt;b onclick=x&gt;\\u{202e}",
        "The last reload was refused",
    ] {
        assert!(page.body.contains(words), "no {words:?} in\n{}", page.body);
    }
    for never in ["<script", "<img", "<b ", "\u{202e}", "\u{1b}"] {
        assert!(!page.body.contains(never), "{never:?} in\n{}", page.body);
    }
    setting.agent.terminate();
}
