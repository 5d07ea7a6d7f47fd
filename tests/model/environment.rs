//! What a process's environment decides for a connection: its proxies and its TLS roots.
//!
//! Both are read once, from the process's own environment, so each case runs in a child: this test
//! binary again, with one test and the variables of the case.

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use kli::model::catalogue::open;

use super::{KEY, ask, options};
use crate::fake_model::{Answer, FakeModel, Wire, message, text};

/// Set in a process that a test started to ask one model: the base URL.
const CHILD_URL: &str = "KLI_TEST_MODEL_URL";

/// Returns what the model at the URL of the environment says, when this process is such a child.
#[expect(clippy::disallowed_methods, reason = "the child is told by its environment")]
fn as_child() -> Option<Result<(), String>> {
    let url = std::env::var(CHILD_URL).ok()?;
    Some(match open(&options(Wire::Messages, &url)) {
        Err(error) => Err(format!("{error}")),
        Ok(model) => match ask(&*model).1 {
            None => Ok(()),
            Some(error) => Err(format!("{:?} {}: {error}", error.class, error.network)),
        },
    })
}

/// Starts this test binary again with one test and an environment, since proxies and roots are
/// read from a process's environment only. Returns what the child said.
#[expect(clippy::disallowed_methods, reason = "the test starts itself, which no host does for it")]
fn ask_in_child(test: &str, url: &str, environment: &[(&str, &str)]) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env_clear()
        .envs(environment.iter().copied())
        .env(CHILD_URL, url)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = printed.split_once("child said: ").and_then(|(_, rest)| rest.split_once('\n'));
    assert!(output.status.success() && said.is_some(), "{printed}");
    said.unwrap().0.to_owned()
}

#[test]
fn loopback_is_reached_past_the_proxy_and_other_hosts_through_it() {
    if let Some(said) = as_child() {
        println!("child said: {said:?}");
        return;
    }
    let direct = FakeModel::start(vec![Answer::new(message([text("direct")])); 2]);
    let proxy = FakeModel::start(vec![Answer::new(message([text("through")]))]);
    let port = direct.address().port();
    for url in [
        direct.base_url(),
        format!("http://localhost:{port}"),
        "http://model.invalid/api".to_owned(),
    ] {
        let said = ask_in_child(
            "model::environment::loopback_is_reached_past_the_proxy_and_other_hosts_through_it",
            &url,
            &[
                ("HTTP_PROXY", &proxy.base_url()),
                ("http_proxy", &proxy.base_url()),
                ("ALL_PROXY", &proxy.base_url()),
            ],
        );
        assert_eq!(said, "Ok(())", "{url}");
    }
    assert_eq!(direct.requests().len(), 2);
    let lines: Vec<String> = proxy.requests().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["POST http://model.invalid/api/v1/messages"]);
}

/// Where the certificates of the tests are.
const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

/// Serves TLS in front of a fake until the process ends; returns the port.
fn tls_front(fake: &FakeModel) -> u16 {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let certificate = include_bytes!("../fixtures/tls/server.pem");
    let key = include_bytes!("../fixtures/tls/server-key.pem");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate).unwrap()],
            PrivateKeyDer::from_pem_slice(key).unwrap(),
        )
        .unwrap();
    let config = std::sync::Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = fake.address();
    std::thread::spawn(move || {
        for outside in listener.incoming().map_while(Result::ok) {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut outside = rustls::StreamOwned::new(session, outside);
            let inside = std::net::TcpStream::connect(address).unwrap();
            // One request, then one answer: enough for a child that asks once.
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !request.ends_with(b"}") {
                match outside.read(&mut buffer) {
                    Ok(count) if count > 0 => request.extend(buffer.iter().take(count)),
                    _ => break,
                }
            }
            if request.is_empty() {
                continue;
            }
            (&inside).write_all(&request).unwrap();
            inside.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            (&inside).read_to_end(&mut answer).unwrap();
            outside.write_all(&answer).unwrap();
            outside.conn.send_close_notify();
            outside.flush().unwrap();
        }
    });
    port
}

#[test]
fn https_trusts_the_systems_roots_and_nothing_else() {
    const TEST: &str = "model::environment::https_trusts_the_systems_roots_and_nothing_else";
    if let Some(said) = as_child() {
        println!("child said: {said:?}");
        return;
    }
    let fake = FakeModel::start(vec![Answer::new(message([text("safe")]))]);
    let port = tls_front(&fake);
    let url = format!("https://localhost:{port}");
    let said = |url: &str, roots: &str| {
        ask_in_child(TEST, url, &[("SSL_CERT_FILE", roots), ("SSL_CERT_DIR", "/nonexistent")])
    };

    let other = said(&url, &format!("{TLS}/other-root.pem"));
    assert!(other.contains("Fatal true: ") && other.contains("UnknownIssuer"), "{other}");
    assert_eq!(fake.requests().len(), 0);

    let none = said(&url, "/nonexistent");
    assert!(
        none.contains("install `ca-certificates` or point SSL_CERT_FILE to a bundle"),
        "{none}"
    );

    let plain = said(&format!("https://{}", fake.address()), &format!("{TLS}/trusted-root.pem"));
    assert!(plain.contains("Retry { after: None } true: "), "{plain}");

    assert_eq!(said(&url, &format!("{TLS}/trusted-root.pem")), "Ok(())");
    assert_eq!(fake.requests().last().unwrap().header("x-api-key"), Some(KEY));

    // A plain server needs no roots at all.
    let fake = FakeModel::start(vec![Answer::new(message([text("plain")]))]);
    assert_eq!(said(&fake.base_url(), "/nonexistent"), "Ok(())");
}
