//! TLS for probes: verified against the system's authorities or a monitor's own, or not at all.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use router_common::model::{Authorities, Trust};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whom verified probes trust.
#[derive(Clone, Debug, Default)]
pub enum Roots {
    /// The system's authorities: `SSL_CERT_FILE` and `SSL_CERT_DIR` when set, else the distribution's
    /// store (Debian: package `ca-certificates`). Read when the first verified probe is set up.
    #[default]
    System,
    /// These and no others.
    Only(Vec<CertificateDer<'static>>),
}

/// A configuration of handshakes, or why there is none.
type Made = Result<Arc<ClientConfig>, Error>;

/// The ways of a handshake.
pub(super) struct Tls {
    roots: Roots,
    verified: OnceLock<Made>,
    unverified: OnceLock<Made>,
    /// By a monitor's own authorities, as long as a target has them.
    own: Mutex<Vec<(Weak<Authorities>, Made)>>,
}

impl Tls {
    pub(super) fn new(roots: Roots) -> Self {
        Self { roots, verified: OnceLock::new(), unverified: OnceLock::new(), own: Mutex::default() }
    }

    /// The configuration of a handshake that trusts these.
    pub(super) fn config(&self, trust: &Trust) -> Made {
        match trust {
            Trust::System => self.verified.get_or_init(|| verifying(&self.roots)).clone(),
            Trust::Anybody => self.unverified.get_or_init(unverifying).clone(),
            Trust::Authorities(authorities) => self.own(authorities),
        }
    }

    fn own(&self, authorities: &Arc<Authorities>) -> Made {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let found = own.iter().find(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(authorities)));
        if let Some((_, made)) = found {
            return made.clone();
        }
        // Those of configurations that are gone.
        own.retain(|(known, _)| known.strong_count() > 0);
        let certificates = authorities.certificates.iter().map(|der| CertificateDer::from(der.clone()));
        let made = verifying(&Roots::Only(certificates.collect()));
        own.push((Arc::downgrade(authorities), made.clone()));
        made
    }
}

fn verifying(roots: &Roots) -> Result<Arc<ClientConfig>, Error> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let why: Vec<String> = found.errors.iter().map(|error| format!(": {error}")).collect();
                log::error!(
                    "no certificate authorities found on this system, every HTTPS probe with verify = true \
                     will fail; install ca-certificates, or set SSL_CERT_FILE{}",
                    why.concat()
                );
            }
        }
        Roots::Only(certificates) => {
            for certificate in certificates {
                store.add(certificate.clone())?;
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(finish(builder.with_root_certificates(store).with_no_client_auth()))
}

fn unverifying() -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(AcceptAny { schemes });
    Ok(finish(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn finish(mut config: ClientConfig) -> Arc<ClientConfig> {
    // Every probe is a new connection in full; a resumed session would flatter the latency.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// `verify = false`: any certificate will do.
#[derive(Debug)]
struct AcceptAny {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
