//! Where secrets usually lie, and which variables usually hold one. Tables and names only: nothing
//! here looks at a file.

/// Where a place starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Each home.
    Home,
    /// `$XDG_CONFIG_HOME` and `~/.config`.
    Config,
    /// `$XDG_DATA_HOME` and `~/.local/share`.
    Data,
    /// The workspace.
    Workspace,
    /// The root.
    Root,
}

/// A place where a secret may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) base: Base,
    /// The file or directory, from the base.
    pub(super) path: &'static str,
    /// What `denyRead` should name, from the base.
    pub(super) deny: &'static str,
    pub(super) what: &'static str,
    pub(super) kind: Kind,
}

/// How a place is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, or a directory with anything in it.
    Any,
    /// A directory with private keys of SSH in it.
    PrivateKeys,
    /// A directory with files whose names say that they hold variables.
    Variables,
}

const fn home(path: &'static str, what: &'static str) -> Place {
    Place { base: Base::Home, path, deny: path, what, kind: Kind::Any }
}

const fn config(path: &'static str, what: &'static str) -> Place {
    Place { base: Base::Config, path, deny: path, what, kind: Kind::Any }
}

/// The same, where hiding the directory around it is the better rule.
const fn below(mut place: Place, deny: &'static str) -> Place {
    place.deny = deny;
    place
}

/// The places, the most usual first.
pub(super) const PLACES: &[Place] = &[
    Place {
        base: Base::Home,
        path: ".ssh",
        deny: ".ssh",
        what: "private keys of SSH",
        kind: Kind::PrivateKeys,
    },
    below(home(".aws/credentials", "keys of AWS"), ".aws"),
    below(home(".aws/sso/cache", "tokens of AWS"), ".aws"),
    config("gcloud", "credentials of Google Cloud"),
    home(".azure", "credentials of Azure"),
    below(home(".kube/config", "access to Kubernetes"), ".kube"),
    home(".netrc", "passwords for servers"),
    home(".git-credentials", "passwords of git"),
    config("git/credentials", "passwords of git"),
    below(home(".docker/config.json", "access to container registries"), ".docker"),
    config("containers/auth.json", "access to container registries"),
    home(".npmrc", "a token of npm, perhaps"),
    home(".pypirc", "a password of PyPI"),
    home(".cargo/credentials.toml", "a token of crates.io"),
    home(".cargo/credentials", "a token of crates.io"),
    home(".gem/credentials", "a key of RubyGems"),
    below(home(".gnupg/private-keys-v1.d", "private keys of GnuPG"), ".gnupg"),
    below(home(".gnupg/secring.gpg", "private keys of GnuPG"), ".gnupg"),
    home(".password-store", "encrypted passwords"),
    config("sops/age/keys.txt", "a private key of age"),
    config("gh/hosts.yml", "a token of GitHub"),
    config("glab-cli/config.yml", "a token of GitLab"),
    config("op", "access to 1Password"),
    config("rclone/rclone.conf", "access to cloud storage"),
    below(home(".terraform.d/credentials.tfrc.json", "a token of Terraform"), ".terraform.d"),
    home(".vault-token", "a token of Vault"),
    home(".pgpass", "passwords of PostgreSQL"),
    home(".my.cnf", "a password of MySQL"),
    home(".claude/.credentials.json", "the login of another agent"),
    home(".codex/auth.json", "the login of another agent"),
    home(".mozilla", "profiles of a browser"),
    config("google-chrome", "profiles of a browser"),
    config("chromium", "profiles of a browser"),
    config("BraveSoftware", "profiles of a browser"),
    home(".thunderbird", "mail and its passwords"),
    Place {
        base: Base::Data,
        path: "keyrings",
        deny: "keyrings",
        what: "the desktop's keyring",
        kind: Kind::Any,
    },
    Place {
        base: Base::Workspace,
        path: "",
        deny: "",
        what: "variables of the project",
        kind: Kind::Variables,
    },
    Place {
        base: Base::Root,
        path: "etc/shadow",
        deny: "etc/shadow",
        what: "hashes of the passwords of this machine",
        kind: Kind::Any,
    },
    Place {
        base: Base::Root,
        path: "etc/ssh",
        deny: "etc/ssh",
        what: "private keys of this machine",
        kind: Kind::PrivateKeys,
    },
];

/// Says whether a file of a directory of SSH is a private key, by its name.
pub(super) fn is_private_key(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "pub" => false,
        "pem" | "key" | "ppk" => true,
        _ => name.starts_with("id_") || name == "identity" || name.ends_with("_key"),
    }
}

/// Says whether a file of a project holds variables that are not meant for others, by its name.
pub(super) fn is_variables(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(".env") else { return false };
    let example = ["example", "sample", "template", "dist", "defaults", "schema"];
    match rest.strip_prefix('.') {
        // `.envrc` is a program; it is told with those.
        None => rest.is_empty(),
        Some(kind) => !kind.split('.').any(|part| example.contains(&part)),
    }
}

/// Says whether a variable probably holds a secret, by its name.
pub(super) fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let words: Vec<&str> = upper.split('_').collect();
    let secret = [
        "TOKEN",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "KEY",
        "APIKEY",
        "PAT",
        "CREDENTIAL",
        "CREDENTIALS",
        "DSN",
    ];
    // A path or a number is no secret, though the name says of what it is.
    let about = ["PATH", "FILE", "DIR", "ID", "NAME", "SOCK", "PUBLIC", "LAYOUT", "TTY"];
    let holds = words.iter().any(|word| secret.contains(word))
        && !words.last().is_some_and(|last| about.contains(last));
    // An identifier of AWS's is half of a key.
    holds || upper == "AWS_ACCESS_KEY_ID" || upper == "DATABASE_URL" || upper == "REDIS_URL"
}

/// A socket that acts for whoever can reach it.
pub(super) struct Agent {
    /// The variable that names it; empty when none does.
    pub(super) variable: &'static str,
    /// Where it usually is.
    pub(super) paths: &'static [&'static str],
    pub(super) what: &'static str,
}

/// The sockets, the most dangerous first. `~` is the home, `$` the runtime directory.
pub(super) const AGENTS: &[Agent] = &[
    Agent {
        variable: "DOCKER_HOST",
        paths: &[
            "/run/docker.sock",
            "/var/run/docker.sock",
            "$/docker.sock",
            "$/podman/podman.sock",
        ],
        what: "starts containers with whatever of this machine in them",
    },
    Agent {
        variable: "DBUS_SESSION_BUS_ADDRESS",
        paths: &["$/bus"],
        what: "asks the desktop and the service manager to start programs",
    },
    Agent {
        variable: "SSH_AUTH_SOCK",
        paths: &["$/keyring/ssh", "$/ssh-agent"],
        what: "logs in to servers with the keys of the agent",
    },
    Agent {
        variable: "",
        paths: &["$/gnupg/S.gpg-agent", "~/.gnupg/S.gpg-agent"],
        what: "signs and decrypts with the keys of GnuPG",
    },
    Agent { variable: "", paths: &["$/systemd/private"], what: "starts services of the user's" },
    Agent {
        variable: "",
        paths: &["/nix/var/nix/daemon-socket/socket"],
        what: "builds outside, with the network",
    },
    Agent { variable: "TMUX", paths: &[], what: "types into other terminals" },
];

/// What `denyRead` writes for a base.
pub(super) fn prefix(base: Base) -> &'static str {
    match base {
        Base::Home => "~/",
        Base::Config => "$XDG_CONFIG_HOME/",
        Base::Data => "$XDG_DATA_HOME/",
        Base::Workspace => "./",
        Base::Root => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_told_from_names_about_them() {
        for name in [
            "GITHUB_TOKEN",
            "OPENAI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SESSION_TOKEN",
            "TOKEN",
            "npm_token",
            "DB_PASSWORD",
            "DATABASE_URL",
            "SENTRY_DSN",
            "GH_PAT",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "KEYBOARD",
            "SSH_AUTH_SOCK",
            "AWS_REGION",
            "AWS_PROFILE",
            "XKB_KEY_LAYOUT",
            "TOKEN_FILE",
            "MONKEY",
            "PATTERN",
            "HOME",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn private_keys_are_told_from_public_ones() {
        for name in ["id_ed25519", "id_rsa", "identity", "work.pem", "ssh_host_rsa_key"] {
            assert!(is_private_key(name), "{name}");
        }
        for name in ["id_ed25519.pub", "known_hosts", "config", "authorized_keys", "id_rsa.x.pub"] {
            assert!(!is_private_key(name), "{name}");
        }
    }

    #[test]
    fn examples_of_variables_are_no_secrets() {
        for name in [".env", ".env.local", ".env.production"] {
            assert!(is_variables(name), "{name}");
        }
        for name in
            [".envrc", ".env.example", ".env.sample", ".env.local.template", "env", ".environment"]
        {
            assert!(!is_variables(name), "{name}");
        }
    }

    #[test]
    fn every_place_can_be_named_in_a_specification() {
        use crate::sandbox::spec::SpecPath;
        for place in PLACES.iter().filter(|place| place.kind != Kind::Variables) {
            assert!(place.path.starts_with(place.deny), "{place:?}");
            let text = format!("{}{}", prefix(place.base), place.deny);
            SpecPath::try_from(text).unwrap().check_denied().unwrap();
        }
    }

    #[test]
    fn no_place_is_there_twice() {
        let mut names: Vec<_> =
            PLACES.iter().map(|place| (prefix(place.base), place.path)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PLACES.len());
    }
}
