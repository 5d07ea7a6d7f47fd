//! Law 15's half that is kli's: a tool looks through the environment and the memory of every
//! process that it can, and finds no key; what is not protected it does find.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    fake_model::FakeModel,
    jail::{Who, World, for_both},
};

use super::{call, handed_json, results, says, unique};

/// Looks for values that it is told backwards and in hexadecimal, so that it is itself no find.
/// Prints `NAME environ PID` and `NAME mem PID`, and at the end how much was read.
const SCAN: &str = r#"
use strict;
my (%needle, %count, $step, @decoys);
# The decoys are children: a kernel may let nobody but a parent look into a process. They are made
# before this process knows any value.
sub decoy {
    my ($program, $ready) = @_;
    my $pid = fork;
    exec "perl", "-e", $program, $ARGV[1] unless $pid;
    push @decoys, $pid;
    select undef, undef, undef, 0.01 until $ready->($pid);
    return $pid;
}
if ($ARGV[0] eq "DECOY") {
    # An earlier run may have left it.
    unlink "ready";
    my $named = sub { open my $file, "<", "/proc/$_[0]/comm"; <$file> eq "sleep\n" };
    print "holder ", decoy(q{$ENV{D} = reverse pack "H*", shift; exec "sleep", "60"}, $named), "\n";
    my $keeper = q{my $x = reverse pack "H*", shift; open my $f, ">", "ready"; sleep 60};
    print "keeper ", decoy($keeper, sub { -e "ready" }), "\n";
}
while (@ARGV) { my $name = shift; $needle{$name} = reverse pack("H*", shift); }
$step = 1 << 20;
opendir(my $proc, "/proc") or die "no /proc: $!";
for my $pid (sort { $a <=> $b } grep { /^\d+$/ } readdir $proc) {
    next if $pid == $$;
    if (open my $file, "<:raw", "/proc/$pid/environ") {
        local $/;
        my $text = <$file>;
        $count{environ}++;
        for my $name (sort keys %needle) {
            print "$name environ $pid\n" if defined $text && index($text, $needle{$name}) >= 0;
        }
    } else { $count{refused}++; }
    open my $maps, "<", "/proc/$pid/maps" or next;
    open my $mem, "<:raw", "/proc/$pid/mem" or next;
    $count{mem}++;
    my %found;
    while (my $line = <$maps>) {
        my ($from, $to) = $line =~ /^([0-9a-f]+)-([0-9a-f]+) r/ or next;
        next if $line =~ /\[v/;
        ($from, $to) = (hex $from, hex $to);
        my $tail = "";
        while ($from < $to) {
            my $want = $to - $from < $step ? $to - $from : $step;
            sysseek $mem, $from, 0 or last;
            my $got = sysread $mem, my $bytes, $want;
            last unless $got;
            $from += $got;
            $count{bytes} += $got;
            for my $name (keys %needle) {
                $found{$name} = 1 if index($tail . $bytes, $needle{$name}) >= 0;
            }
            $tail = substr $bytes, -200;
        }
    }
    print "$_ mem $pid\n" for sort keys %found;
}
printf "scanned %d environ, %d mem, %d bytes, %d refused\n",
    map { $count{$_} || 0 } qw(environ mem bytes refused);
kill "KILL", @decoys;
"#;

/// A value backwards and in hexadecimal.
pub(super) fn hidden(value: &str) -> String {
    use std::fmt::Write as _;
    value.bytes().rev().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The command line that the model asks for: the scan, with two decoys (a value in an environment,
/// and one in nothing but memory), and then a look at kli's own files.
fn line(key: &str, decoy: &str) -> String {
    let (key, decoy) = (hidden(key), hidden(decoy));
    format!(
        "perl scan.pl DECOY {decoy} KEY {key}\n\
         head -c 1 /proc/$PPID/environ || echo \"no environ\"\n\
         head -c 1 /proc/$PPID/mem || echo \"no mem\"\n\
         head -c 1 /proc/$PPID/fd/0 || echo \"no fd\"\n\
         head -c 1 /proc/self/fd/0 && echo \"own fd\""
    )
}

pub(super) struct Scene {
    pub(super) model: FakeModel,
    pub(super) key: String,
    decoy: String,
}

impl Scene {
    pub(super) fn new(world: &World) -> Self {
        let (key, decoy) = (unique("sk-scan"), unique("decoy"));
        world.file("home/project/scan.pl", SCAN);
        let line = line(&key, &decoy);
        let bash = call("c", "bash", &json!({ "command": line, "timeout": 100 }));
        let model = FakeModel::strict(vec![bash, says("looked")]);
        world.install(&model);
        Self { model, key, decoy }
    }

    /// Checks what was found and that nothing else of the run shows the key.
    pub(super) fn judge(&self, world: &World, output: &Output, may_hold: &[u32]) {
        assert!(output.status.success(), "{output:?}");
        let requests = self.model.requests();
        assert_eq!(requests.len(), 2, "{output:?}");
        for request in &requests {
            let sent = request.header("x-api-key");
            assert_eq!(sent, Some(self.key.as_str()), "control: the key was there");
        }
        let text = results(&self.model.bodies()[1])[0].1.clone();
        let pid = |mark: &str| -> u32 {
            let rest = text.lines().find_map(|line| line.strip_prefix(mark));
            rest.unwrap_or_else(|| panic!("no `{mark}` in {text}")).trim().parse().unwrap()
        };
        let (holder, keeper) = (pid("holder "), pid("keeper "));
        for (mark, there) in [
            (format!("DECOY environ {holder}\n"), true),
            (format!("DECOY mem {holder}\n"), true),
            (format!("DECOY mem {keeper}\n"), true),
            (format!("DECOY environ {keeper}\n"), false),
        ] {
            assert_eq!(text.contains(&mark), there, "control: `{mark}` in {text}");
        }
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("KEY "))
            .filter(|line| !may_hold.iter().any(|pid| line.ends_with(&format!(" {pid}"))))
            .collect();
        assert!(found.is_empty(), "{found:?} in {text}");
        assert!(text.contains("scanned "), "the scan came to its end: {text}");
        let refused = text.lines().filter(|line| line.contains("Permission denied")).count();
        assert_eq!(refused, 3, "kli's own files are refused: {text}");
        for mark in ["no environ\n", "no mem\n", "no fd\n", "own fd\n"] {
            assert!(text.contains(mark), "`{mark}` in {text}");
        }
        assert!(!format!("{output:?}").contains(&self.key));
        let mut sessions = 0;
        for file in sessions_of(world) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains("scanned "), "control");
            assert!(!text.contains(&self.key), "{}", file.display());
            sessions += 1;
        }
        assert_eq!(sessions, 1);
        for body in self.model.bodies() {
            let body: Value = body;
            assert!(!body.to_string().contains(&self.key));
            assert!(!body.to_string().contains(&self.decoy), "control: it is told backwards");
        }
    }
}

pub(super) fn sessions_of(world: &World) -> Vec<PathBuf> {
    let root = world.home.join(".local/state/kli/sessions");
    let directories = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    directories
        .flat_map(|directory| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect()
}

pub(super) fn finish(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Takes the pipe on standard input for what a launcher hands over.
pub(super) const HAND_OVER: &str = "exec 9<&0 </dev/null; KLI_SECRETS_FD=9 exec \"$0\" \"$@\"";

#[test]
fn an_ordinary_user_s_tools_find_no_key_in_any_process() {
    // With a key in the environment, in the descriptor, and in the store.
    for source in ["variable", "descriptor", "store", "command"] {
        let world = World::new(Who::User);
        let scene = Scene::new(&world);
        let kli = world.root.join("kli");
        let words = ["-p", "look", "--output-format", "json"];
        let output = match source {
            "variable" => {
                let mut command = world.command(&kli);
                command.args(words).env("ANTHROPIC_API_KEY", &scene.key).env("COPY", &scene.key);
                finish(command, "")
            }
            "descriptor" => {
                let mut command = world.command("sh");
                command.args(["-c", HAND_OVER]).arg(&kli).args(words);
                finish(command, &handed_json(&[("ANTHROPIC_API_KEY", &scene.key)]))
            }
            "store" => {
                let mut command = world.command(&kli);
                command.args(["auth", "set", "anthropic"]);
                let stored = finish(command, &scene.key);
                assert!(stored.status.success(), "{stored:?}");
                let mut command = world.command(&kli);
                command.args(words);
                finish(command, "")
            }
            _ => {
                world.file("home/key", &scene.key);
                let provider = json!({
                    "baseUrl": scene.model.base_url(), "keyCommand": ["cat", "key"],
                });
                let settings = json!({ "providers": { "anthropic": provider } });
                world.file("home/.config/kli/settings.json", &settings.to_string());
                let mut command = world.command(&kli);
                command.args(words);
                finish(command, "")
            }
        };
        // This process knows the key; without an account to drop to, its tools are the same user's.
        scene.judge(&world, &output, &[std::process::id()]);
        world.keep_until_here();
    }
}

#[test]
fn inside_a_jail_nobody_s_tools_find_a_key_not_even_root_s() {
    for_both(|world| {
        // With the key in the variable, as it is mostly given: kli wipes its own environment, and
        // process 1, which started it, lets nobody look.
        let scene = Scene::new(world);
        let kli = world.root.join("kli").display().to_string();
        let words = [kli.as_str(), "-p", "look", "--output-format", "json"];
        let jailed = || {
            let mut command = world.command("timeout");
            command.args(["-k", "1", "120"]).arg(world.launcher()).arg("run").arg("--spec");
            command.arg(world.spec_file()).arg("--");
            command
        };
        let mut command = jailed();
        command.args(words).env("ANTHROPIC_API_KEY", &scene.key);
        let output = finish(command, "");
        scene.judge(world, &output, &[]);
        fs::remove_dir_all(world.home.join(".local")).unwrap();

        // With the key handed over.
        let scene = Scene::new(world);
        let words = ["sh", "-c", HAND_OVER, &kli, "-p", "look", "--output-format", "json"];
        let mut command = jailed();
        command.args(words);
        let output = finish(command, &handed_json(&[("ANTHROPIC_API_KEY", &scene.key)]));
        scene.judge(world, &output, &[]);
        let report = fs::read_to_string(&sessions_of(world)[0]).unwrap();
        assert!(report.contains("kli-sandbox"), "control: it was in the jail");
        // Where the key does lie in an environment, the same scan finds it.
        let mut holder = Command::new("sleep").arg("60").env("K", &scene.key).spawn().unwrap();
        let seen = Command::new("perl")
            .arg(world.workspace.join("scan.pl"))
            .args(["KEY", &hidden(&scene.key)])
            .output()
            .unwrap();
        holder.kill().unwrap();
        holder.wait().unwrap();
        let mark = format!("KEY environ {}\n", holder.id());
        assert!(String::from_utf8_lossy(&seen.stdout).contains(&mark), "control: {seen:?}");
    });
}

#[test]
fn what_a_tool_starts_can_be_looked_at_by_tools() {
    // kli cannot be read, and its children can: debuggers work on what a tool starts.
    let line = "sleep 60 & head -c 5 /proc/$!/environ >/dev/null && echo child can; \
                head -c 5 /proc/$PPID/environ || echo kli cannot";
    let model =
        FakeModel::strict(vec![call("c", "bash", &json!({ "command": line })), says("looked")]);
    let world = World::new(Who::User);
    let kli = world.install(&model);
    let mut command = world.command(kli);
    command.args(["-p", "look"]);
    let output = finish(command, "");
    assert!(output.status.success(), "{output:?}");
    let text = &results(&model.bodies()[1])[0].1;
    assert!(text.contains("child can\n") && text.contains("kli cannot\n"), "{text}");
}

impl World {
    /// Puts kli into the world, with this model as its provider.
    pub(super) fn install(&self, model: &FakeModel) -> PathBuf {
        let settings = json!({ "providers": { "anthropic": { "baseUrl": model.base_url() } } });
        self.file("home/.config/kli/settings.json", &settings.to_string());
        // The build directory may be closed to others. One that is there may be the built program
        // itself, and copying over that would empty it.
        let kli = self.root.join("kli");
        if !kli.exists() && fs::hard_link(env!("CARGO_BIN_EXE_kli"), &kli).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_kli"), &kli).unwrap();
        }
        kli
    }
}
