//! Who may not: refused by the permissions of the socket, and by the API itself when somebody opens the socket wide.

use super::*;

/// Groups that every Debian has.
const LOOKS: &str = "daemon";
const CHANGES: &str = "adm";

/// What a program says.
struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Setting {
    /// Lets others reach the folder and a copy of the program.
    fn open(&self) {
        let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
        open(self.folder.path()).expect("ours");
        std::fs::copy(binary(), self.program()).expect("copied");
        open(&self.program()).expect("ours");
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("xroute")
    }

    /// Runs a program as nobody, with a group and further ones.
    fn as_nobody(&self, group: &str, also: Option<&str>, program: &Path, arguments: &[&str]) -> Said {
        let mut command = self.pair.server.command("setpriv");
        command.args(["--reuid", "nobody", "--regid", group]);
        match also {
            Some(groups) => command.args(["--groups", groups]),
            None => command.arg("--clear-groups"),
        };
        let output = command.arg(program).args(arguments).output().expect("setpriv is there");
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        Said { code: output.status.code(), out: text(&output.stdout), error: text(&output.stderr) }
    }

    fn xroute(&self, group: &str, also: Option<&str>, arguments: &[&str]) -> Said {
        let socket = self.socket();
        let socket = ["--socket", socket.to_str().expect("text")];
        self.as_nobody(group, also, &self.program(), &[arguments, &socket].concat())
    }

    /// Status code and body of what curl gets as nobody.
    fn curl(&self, group: &str, also: Option<&str>, method: &str, path: &str) -> (String, String) {
        let socket = self.socket();
        let url = format!("http://xroute{path}");
        let arguments = [
            "--silent",
            "--show-error",
            "--unix-socket",
            socket.to_str().expect("text"),
            "--request",
            method,
            "--header",
            "content-type: application/json",
            "--write-out",
            "\n%{http_code}",
            &url,
        ];
        let said = self.as_nobody(group, also, Path::new("curl"), &arguments);
        let (body, code) = said.out.rsplit_once('\n').unwrap_or(("", &said.error));
        (code.to_owned(), body.to_owned())
    }
}

fn error(text: &str) -> Value {
    let said: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    said["error"].clone()
}

#[test]
fn netns_who_is_not_meant_to_is_refused_by_the_socket_and_by_the_api() {
    let groups = format!("control_group = \"{LOOKS}\"\nadmin_group = \"{CHANGES}\"");
    let Some(setting) = Setting::new(&groups) else { return };
    setting.open();
    let disable = ["endpoint", "disable", "www/eu1"];

    // Outside of the group the kernel refuses.
    for command in [&["status"][..], &disable, &["override", "list"]] {
        let said = setting.xroute("nogroup", None, command);
        assert_eq!(said.code, Some(4), "{command:?}: {}", said.error);
        for words in ["this user may not (permission denied)", "server.control_group"] {
            assert!(said.error.contains(words), "{}", said.error);
        }
        let said = setting.xroute("nogroup", None, &[command, &["--format", "json"]].concat());
        assert_eq!(said.code, Some(4));
        assert_eq!(error(&said.error)["kind"], "not_permitted");
        assert_eq!(error(&said.error)["exit"], 4);
    }
    assert_eq!(setting.curl("nogroup", None, "GET", "/v1/status").0, "000");

    // Opened wide by mistake: the API refuses.
    let wide = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(setting.socket(), wide).expect("ours");
    for (method, path) in [
        ("GET", "/v1/status"),
        ("GET", "/metrics"),
        ("GET", "/"),
        ("GET", "/v1/openapi.json"),
        ("GET", "/nothing"),
        ("POST", "/v1/reload"),
        ("POST", "/v1/overrides"),
    ] {
        let (code, body) = setting.curl("nogroup", None, method, path);
        assert_eq!(code, "403", "{method} {path}: {body}");
        let error = error(&body);
        assert_eq!(error["kind"], "not_permitted", "{method} {path}");
        assert_eq!(
            error["message"],
            format!(
                "nobody may not ask this agent; that is for root and members of the group {LOOKS} or {CHANGES}"
            )
        );
    }
    let said = setting.xroute("nogroup", None, &["status"]);
    assert_eq!(said.code, Some(4));
    assert!(said.error.starts_with("xroute: nobody may not ask this agent"), "{}", said.error);
    let status = setting.agent.status(&setting.pair.server);
    assert_eq!(status["api"][0]["refused"]["not_permitted"], 8);
    assert_eq!(setting.www(), Some([192, 0, 2, 1]));

    // Who may look may not change; by its first group, and by a further one.
    for (group, also) in [(LOOKS, None), ("nogroup", Some(LOOKS))] {
        assert_eq!(setting.xroute(group, also, &["status"]).code, Some(0));
        assert_eq!(setting.curl(group, also, "GET", "/v1/overrides").0, "200");
        for change in
            [&disable[..], &["reload"], &["override", "clear", "--all"], &["profile", "disable", "www"]]
        {
            let said = setting.xroute(group, also, change);
            assert_eq!(said.code, Some(4), "{change:?}: {}", said.error);
            assert!(said.error.contains("nobody may look, and change nothing"), "{}", said.error);
            assert!(said.error.contains("members of the group adm"), "{}", said.error);
        }
        let (code, body) = setting.curl(group, also, "POST", "/v1/overrides");
        assert_eq!((code.as_str(), &error(&body)["kind"]), ("403", &json!("not_permitted")));
    }
    assert_eq!(setting.www(), Some([192, 0, 2, 1]));
    let audit = setting.folder.path().join("state/audit.jsonl");
    assert!(!audit.exists(), "nobody changed anything");

    // The admin group may, and the audit file says who it was.
    let said = setting.xroute("nogroup", Some(CHANGES), &[&disable[..], &["--reason", "mine"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert_eq!(setting.www(), Some([192, 0, 2, 2]));
    eventually("the audit file", || audit.exists());
    let mut line = String::new();
    eventually("a line", || {
        line = std::fs::read_to_string(&audit).unwrap_or_default();
        line.ends_with('\n')
    });
    let entry: Value = serde_json::from_str(&line).expect("one line");
    assert_eq!((&entry["who"]["user"], &entry["who"]["uid"]), (&json!("nobody"), &json!(65534)));
    assert!(entry["who"]["pid"].as_u64().is_some_and(|pid| pid > 1), "{entry}");
    assert_eq!((&entry["what"], &entry["reason"]), (&json!("override"), &json!("mine")));
    setting.agent.terminate();
}

#[test]
fn netns_without_groups_the_agent_is_for_root_alone() {
    let Some(setting) = Setting::new("") else { return };
    setting.open();
    assert_eq!(setting.xroute("nogroup", None, &["status"]).code, Some(4));
    let wide = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(setting.socket(), wide).expect("ours");
    let said = setting.xroute(LOOKS, Some(CHANGES), &["status"]);
    assert_eq!(said.code, Some(4), "{}", said.error);
    assert!(
        said.error.contains("root (server.control_group names a group that may as well)"),
        "{}",
        said.error
    );
    // The socket's own group is root's, as long as none is named.
    assert_eq!(setting.xroute("root", None, &["status"]).code, Some(0));
    let said = setting.xroute("root", None, &["reload"]);
    assert_eq!(said.code, Some(4));
    assert!(
        said.error.contains("root (server.admin_group names a group that may as well)"),
        "{}",
        said.error
    );
    setting.agent.terminate();
}
