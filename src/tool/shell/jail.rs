//! The line that explains a failure by the jail: which rule, and which option changes it.

use serde_json::Value;

/// What a program says when the jail refused something, and the sentence that explains it.
struct Rule {
    /// Whether the jail has the rule at all.
    holds: fn(&Value) -> bool,
    /// One of these stands in the output.
    signs: &'static [&'static str],
    line: &'static str,
}

fn always(_: &Value) -> bool {
    true
}

fn has_no_network(jail: &Value) -> bool {
    jail.get("network") == Some(&Value::Bool(false))
}

/// The first that fits counts: what is more particular stands before what is more general.
const RULES: [Rule; 9] = [
    Rule {
        holds: always,
        signs: &["/nix/var/nix/daemon-socket"],
        line: "[sandbox: the Nix daemon is out of reach for the whole run; the option \
               `sandbox.allowNixDaemon` keeps its socket]",
    },
    Rule {
        holds: always,
        signs: &["Cannot connect to the Docker daemon", "docker.sock", "podman.sock"],
        line: "[sandbox: sockets of the host are out of reach for the whole run; the option \
               `sandbox.allowSockets` keeps the ones it names]",
    },
    Rule {
        holds: always,
        signs: &["no new privileges"],
        line: "[sandbox: nobody becomes another user inside; no option changes it]",
    },
    Rule {
        holds: always,
        signs: &[
            "unshare failed",
            "creating new namespace failed",
            "Creating new namespace failed",
            "No usable sandbox",
            "Failed to move to new namespace",
        ],
        line: "[sandbox: no further namespace is made inside; the option \
               `sandbox.allowUserNamespaces` allows it]",
    },
    // Git replaces its configuration, and a name that something is mounted on is busy.
    Rule {
        holds: always,
        signs: &["could not write config file"],
        line: "[sandbox: git's hooks and config in the repository are read-only for the whole run; \
               the option `sandbox.git` opens them]",
    },
    Rule {
        holds: always,
        signs: &["Read-only file system", "EROFS"],
        line: "[sandbox: outside the workspace and `writablePaths` everything is read-only for the \
               whole run, and so are hidden paths, git's hooks and config and what `sandbox.protect` \
               lists (`.envrc`, `.kli`) inside; the option `sandbox.writablePaths` opens a directory, \
               `sandbox.git` the git directory]",
    },
    Rule {
        holds: always,
        signs: &["Device or resource busy", "EBUSY"],
        line: "[sandbox: a hidden path reads as empty, and neither it nor a protected one (git's \
               hooks and config, `.envrc`, `.kli`) nor a directory around them can be removed, \
               replaced or moved for the whole run; the option `sandbox.denyRead` lists what is \
               hidden, `sandbox.allowSockets` the sockets that are not, `sandbox.protect` and \
               `sandbox.git` what is protected]",
    },
    Rule {
        holds: has_no_network,
        signs: &[
            "Network is unreachable",
            "ENETUNREACH",
            "Temporary failure in name resolution",
            "Could not resolve host",
            "Name or service not known",
            "EAI_AGAIN",
        ],
        line: "[sandbox: there is no network in this run; the option `sandbox.network` gives it]",
    },
    Rule {
        holds: has_no_network,
        signs: &["127.0.0.1", "localhost", "::1"],
        line: "[sandbox: loopback is the run's own; the option `sandbox.localPorts` reaches a port \
               of the host's]",
    },
];

/// Returns the line about the jail that explains a failure, when there is a jail and one shows.
pub(super) fn sandbox_line(jail: Option<&Value>, texts: &[&str]) -> Option<String> {
    let jail = jail?;
    let shows = |sign: &str| texts.iter().any(|text| text.contains(sign));
    // A server of the run's own may be called localhost as well.
    let refused = || shows("Connection refused") || shows("ECONNREFUSED");
    RULES
        .iter()
        .filter(|rule| (rule.holds)(jail) && rule.signs.iter().any(|sign| shows(sign)))
        .find(|rule| !rule.line.contains("localPorts") || refused())
        .map(|rule| rule.line.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_refusal_names_its_option_and_nothing_else_does() {
        let jail = json!({"version": 1, "network": false, "hiddenPaths": 1});
        for (text, option) in [
            ("touch: cannot touch '/x': Read-only file system", "sandbox.writablePaths"),
            ("rm: cannot remove '.env': Device or resource busy", "sandbox.denyRead"),
            ("mv: cannot move '.git' to 'x': Device or resource busy", "sandbox.protect"),
            (
                "error: could not write config file .git/config: Device or resource busy",
                "the option `sandbox.git` opens",
            ),
            ("curl: (6) Could not resolve host: example.org", "sandbox.network"),
            ("curl: (7) Failed to connect to localhost port 80: Connection refused", "localPorts"),
            (
                "error: cannot connect to socket at '/nix/var/nix/daemon-socket/socket': Connection refused",
                "sandbox.allowNixDaemon",
            ),
            (
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
                "sandbox.allowSockets",
            ),
            ("unshare: unshare failed: Operation not permitted", "sandbox.allowUserNamespaces"),
            (
                "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.",
                "no option",
            ),
        ] {
            let line = sandbox_line(Some(&jail), &[text]);
            assert!(line.as_ref().is_some_and(|line| line.contains(option)), "{text}: {line:?}");
            assert_eq!(sandbox_line(None, &[text]), None, "without a jail nothing is blamed on it");
        }
        for text in ["error: test failed", "listening on localhost:80", "Connection refused"] {
            assert_eq!(sandbox_line(Some(&jail), &[text]), None, "{text}");
        }
        let open = json!({"version": 1, "network": true, "hiddenPaths": 0});
        let text = "localhost: Connection refused";
        assert_eq!(sandbox_line(Some(&open), &[text]), None, "{text}");
        // What is protected is so without anything hidden.
        assert!(sandbox_line(Some(&open), &["Device or resource busy"]).is_some());
    }
}
