//! Law 15 as a whole: the launcher takes a key from a file or a variable, kli has it, and the tools
//! of kli, of an ordinary user and of root inside the jail, cannot get it by any way that is tried.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    fake_model::FakeModel,
    jail::{World, for_both, has},
};

use super::{call, handed_json, results, says, scan, unique};
use scan::Scene;

/// kli in the launcher, with the network as it is.
fn jailed(world: &World, words: &[&str]) -> Command {
    let mut command = world.command("timeout");
    command.args(["-k", "1", "120"]).arg(world.launcher()).arg("run").arg("--spec");
    command.arg(world.spec_file()).arg("--").arg(world.root.join("kli")).args(words);
    command
}

const LOOK: [&str; 4] = ["-p", "look", "--output-format", "json"];

#[test]
fn a_key_that_the_launcher_hands_over_is_in_no_process_inside() {
    for_both(|world| {
        // Moved out of the variable.
        let scene = Scene::new(world);
        world.spec(r#"{"secretEnv":["ANTHROPIC_API_KEY"]}"#);
        let mut command = jailed(world, &LOOK);
        command.env("ANTHROPIC_API_KEY", &scene.key);
        let output = scan::finish(command, "");
        scene.judge(world, &output, &[]);
        fs::remove_dir_all(world.home.join(".local")).unwrap();

        // Read from a file.
        let scene = Scene::new(world);
        world.file("home/keys/anthropic", &format!("{}\n", scene.key));
        world.spec(r#"{"secrets":{"ANTHROPIC_API_KEY":"~/keys/anthropic"}}"#);
        let output = scan::finish(jailed(world, &LOOK), "");
        scene.judge(world, &output, &[]);
        fs::remove_dir_all(world.home.join(".local")).unwrap();

        // Handed over by the launcher's own caller, with a variable that is moved besides.
        let scene = Scene::new(world);
        world.spec(r#"{"secretEnv":["ANTHROPIC_API_KEY"]}"#);
        let mut command = world.command("sh");
        command.args(["-c", scan::HAND_OVER, "timeout", "-k", "1", "120"]).arg(world.launcher());
        command.args(["run", "--spec"]).arg(world.spec_file()).arg("--");
        command
            .arg(world.root.join("kli"))
            .args(LOOK)
            .env("ANTHROPIC_API_KEY", "sk-not-this-one-0");
        let output = scan::finish(command, &handed_json(&[("ANTHROPIC_API_KEY", &scene.key)]));
        scene.judge(world, &output, &[]);
    });
}

/// Tries what is left besides environments and memory: descriptors, every file, a tracer.
const TRY: &str = r#"
use strict;
my ($parent, $key, $decoy) = @ARGV;
# A number: to syscall a string is an address.
$parent += 0;
$_ = reverse pack "H*", $_ for $key, $decoy;
# Every descriptor of every process that lets anybody look, this one's own standard streams left out.
my ($opened, $refused) = (0, 0);
for my $pid (grep { m!/\d+$! } glob "/proc/*") {
    my @numbers = glob "$pid/fd/*";
    opendir(my $list, "$pid/fd") or do { $refused++; next };
    for my $number (grep { /^\d+$/ && $_ > 2 } readdir $list) {
        next if $pid eq "/proc/$$";
        use Fcntl;
        sysopen(my $file, "$pid/fd/$number", O_RDONLY | O_NONBLOCK) or do { $refused++; next };
        $opened++;
        sysread $file, my $text, 1 << 16;
        print "KEY descriptor $pid/fd/$number\n" if defined $text && index($text, $key) >= 0;
        print "DECOY descriptor\n" if defined $text && index($text, $decoy) >= 0;
    }
}
print "descriptors refused\n" if $refused;
# Every file below what the inside can read of this world, and what the jail has of its own.
my @queue = ($ENV{HOME}, "/run", "/tmp", "/dev/shm", ".");
while (defined(my $at = shift @queue)) {
    next if -l $at;
    if (-d _) { push @queue, glob "\Q$at\E/{*,.[!.]*}"; next }
    next unless -f _ && -s _ < 64 << 20;
    open my $file, "<:raw", $at or next;
    local $/;
    my $text = <$file>;
    print "KEY file $at\n" if defined $text && index($text, $key) >= 0;
    print "DECOY file $at\n" if defined $text && index($text, $decoy) >= 0;
}
# ptrace(2): attach and seize, by number; a child can be traced, so the call itself is there.
my ($ptrace) = (`uname -m` =~ /aarch64/ ? 117 : 101);
for my $pid ($parent, 1) {
    for my $request (16, 0x4206) {
        my $done = syscall $ptrace, $request, $pid, 0, 0;
        print $done == 0 ? "TRACED $pid\n" : "tracer refused: $!\n";
    }
}
my $child = fork;
unless ($child) { sleep 30; exit }
print "child traced\n" if syscall($ptrace, 16, $child, 0, 0) == 0;
waitpid $child, 0;
kill "KILL", $child;
syscall $ptrace, 7, $child, 0, 0;
print "tried\n";
"#;

#[test]
fn no_descriptor_no_file_and_no_tracer_gives_a_key() {
    for_both(|world| {
        let (key, decoy) = (unique("sk-try"), unique("decoy"));
        world.file("home/project/try.pl", TRY);
        world.file("home/keys/anthropic", &key);
        world.file("home/ordinary/file", &decoy);
        world.spec(r#"{"secrets":{"ANTHROPIC_API_KEY":"~/keys/anthropic"},"stateDir":true}"#);
        let line = format!(
            "exec 8<../ordinary/file; sleep 20 & perl try.pl $PPID {} {}; kill $!",
            scan::hidden(&key),
            scan::hidden(&decoy)
        );
        let bash = call("b", "bash", &json!({ "command": line, "timeout": 60 }));
        let read = call("r", "read", &json!({ "path": world.home.join("keys/anthropic") }));
        let search = call("s", "search", &json!({ "pattern": "sk-try", "path": world.home }));
        let model = FakeModel::strict(vec![bash, read, search, says("looked")]);
        world.install(&model);
        let output = scan::finish(jailed(world, &LOOK), "");
        assert!(output.status.success(), "{output:?}");
        for request in model.requests() {
            assert_eq!(request.header("x-api-key"), Some(key.as_str()), "control: kli has it");
        }
        let bodies = model.bodies();
        let text = &results(&bodies[1])[0].1;
        assert!(!text.contains("KEY ") && !text.contains("TRACED"), "{text}");
        has(
            text,
            &[
                "DECOY descriptor\n",
                "ordinary/file\n",
                "descriptors refused\n",
                "child traced\n",
                "tried\n",
            ],
        );
        assert_eq!(text.matches("tracer refused: Operation not permitted").count(), 4, "{text}");
        for body in &bodies {
            assert!(!body.to_string().contains(&key), "neither by read nor by search");
        }
        assert!(!format!("{output:?}").contains(&key));
        assert_eq!(results(&bodies[2])[0].0, "r");
        assert_eq!(results(&bodies[3])[0].0, "s");
    });
}

/// The files below `root` that hold `text`.
fn holding(root: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_path_buf()];
    while let Some(at) = queue.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                queue.push(entry.path());
            } else if kind.is_file()
                && fs::read(entry.path())
                    .is_ok_and(|bytes| memchr::memmem::find(&bytes, text.as_bytes()).is_some())
            {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_kli_that_is_killed_while_it_has_a_key_leaves_none_on_disk() {
    for_both(|world| {
        let key = unique("sk-core");
        world.spec(r#"{"secretEnv":["ANTHROPIC_API_KEY"]}"#);
        // Its limit is raised first, where that is allowed at all; then it is made to dump.
        let line = "ulimit -c unlimited; prlimit --pid $PPID --core=unlimited:unlimited; \
                    sh -c 'kill -ABRT $$'; kill -ABRT $PPID; sleep 5";
        let bash = call("b", "bash", &json!({ "command": line, "timeout": 30 }));
        let model = FakeModel::start(vec![bash, says("looked")]);
        world.install(&model);
        let output: Output = {
            let mut command = jailed(world, &LOOK);
            command.env("ANTHROPIC_API_KEY", &key);
            scan::finish(command, "")
        };
        assert_eq!(output.status.code(), Some(128 + 6), "it was killed by it: {output:?}");
        assert_eq!(model.requests()[0].header("x-api-key"), Some(key.as_str()), "control");
        assert!(holding(&world.root, &key).is_empty(), "{:?}", holding(&world.root, &key));
        let mut file = fs::File::create(world.workspace.join("control")).unwrap();
        file.write_all(key.as_bytes()).unwrap();
        assert_eq!(holding(&world.root, &key).len(), 1, "control");
    });
}

#[test]
fn a_run_that_is_given_no_key_says_so_at_once() {
    for_both(|world| {
        world.spec(r#"{"secretEnv":["ANTHROPIC_API_KEY"]}"#);
        let model = FakeModel::start(vec![says("looked")]);
        world.install(&model);
        let settings = json!({ "providers": { "anthropic": {
            "baseUrl": model.base_url(), "keyEnv": "ANTHROPIC_API_KEY",
        } } });
        world.file("home/.config/kli/settings.json", &settings.to_string());
        let begin = Instant::now();
        let output = scan::finish(jailed(world, &["-p", "look"]), "");
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        has(&String::from_utf8_lossy(&output.stderr), &["ANTHROPIC_API_KEY"]);
        assert!(begin.elapsed() < Duration::from_secs(20));
        let mut command = jailed(world, &["-p", "look"]);
        command.env("ANTHROPIC_API_KEY", "sk-given-in-a-variable-0");
        let output = scan::finish(command, "");
        assert!(output.status.success(), "control: {output:?}");
    });
}
