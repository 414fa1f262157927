//! HTTPS probes against good and bad certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use router_common::health::{Outcome, ProbeFault, Stage, TlsFault};
use router_common::model::{Authorities, HttpProbe, ProbeMethod, ProbeTarget, Trust};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::request;
use super::server::{Act, OK, Server};
use crate::probe::{Prober, Roots, Settings};

const TIMEOUT: Duration = Duration::from_secs(3);

/// An authority of our own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Its own name, so that certificates of others do not seem to be issued by it.
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", next_number()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn prober(&self) -> Prober {
        let roots = Roots::Only(vec![self.certificate.clone()]);
        Prober::new(Settings { roots, ..Settings::default() })
    }

    /// A server configuration with a certificate for these names and years.
    fn issue(&self, names: &[&str], years: (i32, i32)) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params(names, years).signed_by(&key, &self.issuer).unwrap();
        server_config(certificate.der().clone(), &key)
    }
}

fn next_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn params(names: &[&str], (from, to): (i32, i32)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, format!("server {}", next_number()));
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(to, 1, 1);
    params
}

fn self_signed(names: &[&str], years: (i32, i32)) -> Arc<rustls::ServerConfig> {
    let key = KeyPair::generate().unwrap();
    server_config(params(names, years).self_signed(&key).unwrap().der().clone(), &key)
}

fn server_config(certificate: CertificateDer<'static>, key: &KeyPair) -> Arc<rustls::ServerConfig> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

async fn https(config: Arc<rustls::ServerConfig>, act: Act) -> Server {
    Server::bind("127.0.0.1:0", act, Some(config)).await
}

fn probe_of(server: &Server, host: &str, verify: bool) -> ProbeTarget {
    let tls = Some(if verify { Trust::System } else { Trust::Anybody });
    ProbeTarget::Http(HttpProbe { host: host.to_owned(), tls, ..request(server.address) })
}

fn tls(fault: TlsFault) -> Outcome {
    Outcome::Fault(ProbeFault::Tls(fault))
}

const NOW: (i32, i32) = (2000, 2900);

#[tokio::test]
async fn each_certificate_has_its_outcome() {
    let authority = Authority::new();
    let prober = authority.prober();
    let name = "www.example.test";
    for (what, config, verified) in [
        ("good", authority.issue(&[name], NOW), Outcome::Status(200)),
        ("wildcard", authority.issue(&["*.example.test"], NOW), Outcome::Status(200)),
        ("expired", authority.issue(&[name], (2000, 2001)), tls(TlsFault::Expired)),
        ("not valid yet", authority.issue(&[name], (2800, 2900)), tls(TlsFault::NotValidYet)),
        ("another name", authority.issue(&["other.example.test"], NOW), tls(TlsFault::WrongName)),
        ("self-signed", self_signed(&[name], NOW), tls(TlsFault::UnknownIssuer)),
        ("another authority's", Authority::new().issue(&[name], NOW), tls(TlsFault::UnknownIssuer)),
    ] {
        let server = https(config, Act::Reply(OK.to_vec())).await;
        let verifying = prober.probe(&probe_of(&server, name, true), TIMEOUT).await;
        assert_eq!(verifying.outcome, verified, "{what}");
        assert_eq!(server.requests().len(), usize::from(verified == Outcome::Status(200)), "{what}");
        let trusting = prober.probe(&probe_of(&server, name, false), TIMEOUT).await;
        assert_eq!(trusting.outcome, Outcome::Status(200), "{what}, not verified");
        assert_eq!(server.names().last(), Some(&Some(name.to_owned())), "{what}");
        server.assert_no_connection().await;
        server.stop().await;
    }
}

#[tokio::test]
async fn the_system_does_not_know_our_authority() {
    let server = https(Authority::new().issue(&["www.example.test"], NOW), Act::Reply(OK.to_vec())).await;
    let prober = Prober::new(Settings::default());
    let observation = prober.probe(&probe_of(&server, "www.example.test", true), TIMEOUT).await;
    assert_eq!(observation.outcome, tls(TlsFault::UnknownIssuer));
}

#[tokio::test]
async fn an_ip_address_as_host_is_verified_without_sni() {
    let authority = Authority::new();
    let prober = authority.prober();
    // The certificate names an address that is not the one connected to.
    for host in ["192.0.2.1", "2001:db8::1"] {
        let server = https(authority.issue(&[host], NOW), Act::Reply(OK.to_vec())).await;
        let (observation, transcript) = prober.probe_recorded(&probe_of(&server, host, true), TIMEOUT).await;
        assert_eq!(observation.outcome, Outcome::Status(200), "{transcript}");
        assert_eq!(server.names(), [None]);
        assert!(transcript.to_string().contains("no SNI, certificate verified"), "{transcript}");
        let other = prober.probe(&probe_of(&server, "192.0.2.2", true), TIMEOUT).await;
        assert_eq!(other.outcome, tls(TlsFault::WrongName));
        server.stop().await;
    }
}

#[tokio::test]
async fn host_with_port_and_final_dot() {
    let authority = Authority::new();
    let server = https(authority.issue(&["www.example.test"], NOW), Act::Reply(OK.to_vec())).await;
    for (host, header) in
        [("www.example.test:8443", "www.example.test:8443"), ("www.example.test.", "www.example.test")]
    {
        let target = probe_of(&server, host, true);
        let (observation, transcript) = authority.prober().probe_recorded(&target, TIMEOUT).await;
        assert_eq!(observation.outcome, Outcome::Status(200), "{transcript}");
        assert_eq!(transcript.tls.unwrap().sni.as_deref(), Some("www.example.test"));
        let sent = String::from_utf8(transcript.sent).unwrap();
        assert!(sent.contains(&format!("Host: {header}\r\n")), "{sent}");
    }
}

#[tokio::test]
async fn tls_that_is_none() {
    let prober = Prober::new(Settings::default());
    // A plain HTTP server reads the handshake as garbage; ours waits for a line that never comes.
    let plain = Server::start(Act::Reply(OK.to_vec())).await;
    let silent = prober.probe(&probe_of(&plain, "www.example.test", false), Duration::from_millis(300)).await;
    assert_eq!(silent.outcome, Outcome::Fault(ProbeFault::Timeout(Stage::Tls)));
    plain.assert_no_connection().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let talker = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 mail.example.test ESMTP ready\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        let (stream, _) = listener.accept().await.unwrap();
        drop(stream);
    });
    let smtp = super::https(address, Trust::Anybody);
    assert_eq!(prober.probe(&smtp, TIMEOUT).await.outcome, tls(TlsFault::Protocol));
    let closed = prober.probe(&smtp, TIMEOUT).await.outcome;
    assert!(
        matches!(closed, Outcome::Fault(ProbeFault::Closed | ProbeFault::Reset)),
        "the server hung up in the handshake: {closed:?}"
    );
    talker.await.unwrap();
}

#[tokio::test]
async fn half_a_body_over_tls() {
    let authority = Authority::new();
    let act = Act::Close(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec());
    let server = https(authority.issue(&["www.example.test"], NOW), act).await;
    let target = ProbeTarget::Http(HttpProbe {
        method: ProbeMethod::Get,
        tls: Some(Trust::System),
        ..request(server.address)
    });
    let observation = authority.prober().probe(&target, TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Fault(ProbeFault::Closed));
}

#[tokio::test]
async fn a_monitor_trusts_its_own_authority_and_no_other() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let trust = |authority: &Authority, file: &str| {
        let certificates = vec![authority.certificate.to_vec()];
        Trust::Authorities(Arc::new(Authorities { file: file.to_owned(), certificates }))
    };
    // The agent's prober knows neither.
    let prober = Prober::new(Settings::default());
    let server = https(ours.issue(&["www.example.test"], NOW), Act::Reply(OK.to_vec())).await;
    for (trust, outcome) in [
        (trust(&ours, "ours.pem"), Outcome::Status(200)),
        (trust(&theirs, "theirs.pem"), tls(TlsFault::UnknownIssuer)),
        // The same file, with other content after a reload.
        (trust(&theirs, "ours.pem"), tls(TlsFault::UnknownIssuer)),
        (Trust::System, tls(TlsFault::UnknownIssuer)),
        (Trust::Anybody, Outcome::Status(200)),
    ] {
        let target = super::https(server.address, trust);
        assert_eq!(prober.probe(&target, TIMEOUT).await.outcome, outcome, "{target}");
        assert_eq!(prober.probe(&target, TIMEOUT).await.outcome, outcome, "{target}, again");
    }
    server.assert_no_connection().await;
}
