//! Laws 1, 6 and the writable paths: what the inside sees, reaches and can write.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use crate::jail::{err, for_both, has, ok, out, refused};

#[test]
fn only_the_workspace_and_the_listed_paths_are_writable() {
    for_both(|world| {
        world.spec(r#"{"writablePaths":["~/.cache/tool"]}"#);
        let outside = world.root.join("outside/new");
        let place = outside.display();
        let tried = world.inside(&format!("echo x > '{place}'"));
        assert_eq!(tried.status.code(), Some(2));
        has(&err(&tried), &["Read-only file system"]);
        assert!(!outside.exists());
        let elsewhere = world.inside("touch ~/new; touch ~/.config/new; touch /run/new /dev/new /run/kli/new; rm -f /run/kli/sandbox.json");
        assert_eq!(err(&elsewhere).matches("Read-only file system").count(), 5, "{elsewhere:?}");
        ok(&world.plainly(&format!("echo x > '{place}'")));
        ok(&world.inside("echo a > here && echo b > ~/.cache/tool/there && echo c > ~/.local/state/kli/s && echo d > /tmp/t && echo e > /dev/shm/e"));
        assert_eq!(fs::read_to_string(world.workspace.join("here")).unwrap(), "a\n");
        assert_eq!(fs::read_to_string(world.home.join(".cache/tool/there")).unwrap(), "b\n");
        assert_eq!(fs::read_to_string(world.home.join(".local/state/kli/s")).unwrap(), "c\n");
        assert!(!fs::exists("/tmp/t").unwrap());
        for made in [".cache", ".cache/tool", ".local/state/kli"] {
            let mode = fs::metadata(world.home.join(made)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{made}");
        }
    });
}

#[test]
fn a_single_file_can_be_writable() {
    for_both(|world| {
        let file = world.file("home/.toolrc", "old");
        world.file("home/.otherrc", "old");
        world.spec(r#"{"writablePaths":["~/.toolrc"]}"#);
        let tried = world.inside("echo new > ~/.toolrc; echo new > ~/.otherrc");
        has(&err(&tried), &["Read-only file system"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(world.home.join(".otherrc")).unwrap(), "old");
    });
}

#[test]
fn a_missing_writable_path_outside_the_home_is_named() {
    for_both(|world| {
        let missing = world.root.join("missing/place");
        world.spec(&serde_json::json!({ "writablePaths": [missing] }).to_string());
        let text = refused(&world.inside("touch effect"));
        has(&text, &["writablePaths", missing.to_str().unwrap(), "does not exist", "create it"]);
        assert!(!world.root.join("missing").exists());
        assert!(!world.workspace.join("effect").exists());
        world.dir("missing/place");
        ok(&world.inside(&format!("touch '{}/effect'", missing.display())));
        assert!(missing.join("effect").exists());
    });
}

#[test]
fn a_link_planted_in_a_writable_path_is_not_followed() {
    for_both(|world| {
        world.dir("home/cache");
        world.spec(r#"{"writablePaths":["~/cache","~/cache/kli"]}"#);
        ok(&world.inside(&format!(
            "rmdir ~/cache/kli; ln -s '{}' ~/cache/kli",
            world.root.join("outside").display()
        )));
        let text = refused(&world.inside("touch ~/cache/kli/effect"));
        has(&text, &["is a symbolic link inside", "an earlier start could write"]);
        assert!(!world.root.join("outside/effect").exists());
        ok(&world.plainly("rm ~/cache/kli"));
        ok(&world.inside("mkdir -p ~/cache/kli && touch ~/cache/kli/effect"));
        // A link that only the host can have made is followed.
        world.dir("data");
        world.link("home/store", "../data");
        world.spec(r#"{"writablePaths":["~/store/new"]}"#);
        ok(&world.inside("touch ~/store/new/effect"));
        assert!(world.root.join("data/new/effect").exists());
    });
}

#[test]
fn kli_s_configuration_stays_read_only_inside_a_writable_path() {
    for_both(|world| {
        world.file("home/.config/kli/settings.json", "{}");
        world.spec(r#"{"writablePaths":["~/.config"]}"#);
        let tried = world.inside("touch ~/.config/other; echo x > ~/.config/kli/settings.json; mv ~/.config/kli ~/.config/x; mv ~/.config ~/x");
        has(&err(&tried), &["Read-only file system", "busy"]);
        assert!(world.home.join(".config/other").exists());
        assert_eq!(fs::read_to_string(world.home.join(".config/kli/settings.json")).unwrap(), "{}");
    });
}

const CONNECT: &str = "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); \
     connect(S,sockaddr_un($ARGV[0])) or die \"$!\\n\"; print \"connected\\n\"' ";

#[test]
fn a_socket_of_the_host_below_run_is_out_of_reach() {
    for_both(|world| {
        world.dir("run/user");
        let _listener = UnixListener::bind(world.root.join("run/docker.sock")).unwrap();
        let _session = UnixListener::bind(world.root.join("run/user/bus")).unwrap();
        let everyone = fs::Permissions::from_mode(0o777);
        fs::set_permissions(world.root.join("run/docker.sock"), everyone.clone()).unwrap();
        fs::set_permissions(world.root.join("run/user/bus"), everyone).unwrap();
        for socket in ["/run/docker.sock", "/run/user/bus", "/tmp/docker.sock"] {
            let script = format!(
                "mount --bind \"$W/run\" /run; mount --bind \"$W/run\" /tmp; {CONNECT} {socket}"
            );
            assert_eq!(ok(&world.in_namespace(&script)), "connected\n");
            let script = format!(
                "mount --bind \"$W/run\" /run; mount --bind \"$W/run\" /tmp; \"$L\" run --spec \"$SPEC\" -- {CONNECT} {socket}"
            );
            let tried = world.in_namespace(&script);
            assert_eq!(out(&tried), "");
            assert_eq!(err(&tried), "No such file or directory\n");
        }
    });
}

#[test]
fn without_network_the_host_s_loopback_is_gone_and_the_own_one_works() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!(
        "perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); connect(S,sockaddr_in({port},inet_aton(\"127.0.0.1\"))) or die \"$!\\n\"; print \"connected\\n\"'"
    );
    let own = "perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); bind(S,sockaddr_in(0,inet_aton(\"127.0.0.1\"))) or die; listen(S,1); socket(C,AF_INET,SOCK_STREAM,0); connect(C,getsockname(S)) or die \"$!\\n\"; print \"own\\n\"'";
    for_both(|world| {
        world.spec(r#"{"network":true}"#);
        assert_eq!(ok(&world.inside(&connect)), "connected\n");
        let cut = world.run_with(&["--no-network"], &["sh", "-c", &connect]).output().unwrap();
        assert_eq!(err(&cut), "Connection refused\n");
        world.spec(r#"{"network":false}"#);
        let tried = world.inside(&connect);
        assert_eq!((out(&tried).as_str(), err(&tried).as_str()), ("", "Connection refused\n"));
        assert_eq!(ok(&world.inside(own)), "own\n");
        has(&ok(&world.inside("cat /run/kli/sandbox.json; ls /sys/class/net /proc/self/net >/dev/null; cat /proc/net/dev")), &[r#""network":false"#, "lo:"]);
    });
}

#[test]
fn the_namespaces_are_the_inside_s_own() {
    for_both(|world| {
        for kind in ["user", "mnt", "pid", "ipc", "uts", "cgroup"] {
            let look = format!("readlink /proc/self/ns/{kind}");
            assert_ne!(ok(&world.inside(&look)), ok(&world.plainly(&look)), "{kind}");
        }
        assert_eq!(ok(&world.inside("id -u")), ok(&world.plainly("id -u")));
        assert_eq!(ok(&world.inside("sh -c 'echo $PPID'; ls -d /proc/[0-9]* | wc -l > count; test $(cat count) -lt 8 && echo few")), "2\nfew\n");
        assert_ne!(
            ok(&world.plainly("ls -d /proc/[0-9]* | wc -l")),
            fs::read_to_string(world.workspace.join("count")).unwrap()
        );
    });
}

#[test]
fn a_file_system_mounted_outside_later_stays_outside() {
    let script = |start: &str| {
        format!(
            "mount --make-rshared / && cd \"$W/home/project\" && \
             {start} sh -c 'touch up; until test -e go; do sleep 0.02; done; ls -A \"$W/usb\"; ls -A ../../usb' & \
             until test -e up; do sleep 0.02; done; \
             mount -t tmpfs stick \"$W/usb\" && touch \"$W/usb/stick\" && touch go && wait $!"
        )
    };
    for_both(|world| {
        world.dir("usb");
        let plain = "bwrap --ro-bind / / --dev /dev --proc /proc --bind \"$PWD\" \"$PWD\"";
        has(&ok(&world.in_namespace(&script(plain))), &["stick"]);
        fs::remove_file(world.workspace.join("go")).unwrap();
        fs::remove_file(world.workspace.join("up")).unwrap();
        let own = "\"$L\" run --spec \"$SPEC\" --";
        assert_eq!(ok(&world.in_namespace(&script(own))), "");
    });
}

#[test]
fn kli_s_configuration_cannot_be_moved_away_with_what_contains_it() {
    for_both(|world| {
        let settings = world.file("home/.config/kli/settings.json", "{}");
        world.file("home/.config/other/file", "");
        let swap = "mv ~/.config ~/x && mkdir -p ~/.config/kli && echo EVIL > ~/.config/kli/settings.json; \
             mv ~/.config/other ~/.config/another; touch ~/new";
        world.spec(r#"{"writablePaths":["~/"]}"#);
        let tried = world.inside(swap);
        has(&err(&tried), &["busy"]);
        assert_eq!(fs::read_to_string(&settings).unwrap(), "{}");
        // The rest stays as writable as it was said to be.
        assert!(world.home.join("new").exists());
        assert!(world.home.join(".config/another/file").exists());
        world.spec(r#"{"allowHomeWorkspace":true}"#);
        let mut start = world.run_with(&[], &["sh", "-c", swap]);
        has(&err(&start.current_dir(&world.home).output().unwrap()), &["busy"]);
        assert_eq!(fs::read_to_string(&settings).unwrap(), "{}");
        // Where it does not exist yet, it is made before the inside can.
        fs::remove_dir_all(world.home.join(".config")).unwrap();
        world.spec(r#"{"writablePaths":["~/"]}"#);
        has(&err(&world.inside(swap)), &["busy"]);
        assert!(!settings.exists());
        ok(&world.plainly(
            "mv ~/.config ~/x && mkdir -p ~/.config/kli && echo EVIL > ~/.config/kli/settings.json",
        ));
        assert!(settings.exists());
    });
}

#[test]
fn kli_s_configuration_behind_a_writable_link_or_made_writable_is_refused() {
    for_both(|world| {
        world.dir("home/dotfiles/kli/extensions");
        world.dir("home/.config");
        world.link("home/.config/kli", "../dotfiles/kli");
        world.spec(r#"{"writablePaths":["~/"]}"#);
        let text = refused(&world.inside("touch effect"));
        has(&text, &["cannot be kept read-only", ".config/kli` is a symbolic link inside"]);
        world.spec(r#"{"writablePaths":["~/.config/kli/extensions"]}"#);
        let text = refused(&world.inside("touch effect"));
        has(&text, &["belongs to kli's configuration", "take it out"]);
        assert!(!world.workspace.join("effect").exists());
        world.spec("{}");
        ok(&world.inside("touch effect; ls ~/.config/kli/extensions"));
        assert!(world.workspace.join("effect").exists());
    });
}

#[test]
fn a_state_directory_that_is_a_file_is_refused() {
    for_both(|world| {
        let state = world.file("home/.local/state/kli", "x");
        let text = refused(&world.inside("touch effect"));
        has(&text, &["`stateDir`", "it is no directory: remove it"]);
        assert!(!world.workspace.join("effect").exists());
        fs::remove_file(state).unwrap();
        ok(&world.inside("touch effect"));
        assert!(world.workspace.join("effect").exists());
    });
}
