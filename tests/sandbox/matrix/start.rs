//! Laws 10, 11, 12, 13 and 16: where it starts, what it needs, what works, what is told, and what the
//! next start believes.

use super::{Row, row, start};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = workspace();
    rows.extend(closed());
    rows.extend(usable());
    rows.extend(told());
    rows.extend(next_start());
    rows
}

const REFUSED: &str = "cannot be the workspace";
const UP: &str = "\"$L\" run --spec \"$SPEC\" -- echo up";

fn workspace() -> Vec<Row> {
    vec![
        start(10, "start in `/`", "cd / && \"$L\" run --spec \"$SPEC\" -- touch $R/effect").refused(REFUSED).effect("ls $R/effect 2>/dev/null").control(UP, "up"),
        start(10, "start in `/etc`", "cd /etc && \"$L\" run --spec \"$SPEC\" -- echo SECRET").refused(REFUSED).control(UP, "up"),
        start(10, "start in `/usr/lib`", "cd /usr/lib && \"$L\" run --spec \"$SPEC\" -- echo SECRET").refused(REFUSED).control(UP, "up"),
        start(10, "start in the home", "cd ~ && \"$L\" run --spec \"$SPEC\" -- touch effect").refused(REFUSED).effect("ls ~/effect 2>/dev/null").control(UP, "up"),
        start(10, "start above the home", "cd $R && \"$L\" run --spec \"$SPEC\" -- touch effect").refused(REFUSED).effect("ls $R/effect 2>/dev/null").control(UP, "up"),
        start(10, "start where keys are", "mkdir -p ~/.ssh && cd ~/.ssh && \"$L\" run --spec \"$SPEC\" -- touch effect").refused(REFUSED).effect("ls ~/.ssh/effect 2>/dev/null").control(UP, "up"),
        start(10, "start in what is hidden", "cd ~/.aws && \"$L\" run --spec \"$SPEC\" -- cat credentials").refused(REFUSED).control(UP, "up"),
        start(10, "start in kli's configuration", "mkdir -p ~/.config/kli && cd ~/.config/kli && \"$L\" run --spec \"$SPEC\" -- touch effect").refused(REFUSED).effect("ls ~/.config/kli/effect 2>/dev/null").control(UP, "up"),
    ]
}

fn closed() -> Vec<Row> {
    vec![
        start(11, "start without bubblewrap", "PATH=/nonexistent \"$L\" run --spec \"$SPEC\" -- /bin/touch effect")
            .refused("bubblewrap is not found on PATH")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
        start(11, "start with a specification that is not understood", "echo '{\"denyReed\":[]}' > $R/data/s; \"$L\" run --spec $R/data/s -- touch effect")
            .refused("did you mean `denyRead`?")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
        start(11, "start with a specification from a pipe", "cat \"$SPEC\" | \"$L\" run --spec /dev/stdin -- touch effect")
            .refused("must be a regular file")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
        start(11, "start where user namespaces are used up", "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$L\" run --spec \"$SPEC\" -- touch effect'")
            .refused("`user.max_user_namespaces` is 0")
            .effect("ls effect 2>/dev/null")
            .control("unshare -Ur \"$L\" run --spec \"$SPEC\" -- echo up", "up"),
        start(11, "start where `/proc` is masked", "unshare -Urm sh -c 'mount --bind /dev/null /proc/keys; exec \"$L\" run --spec \"$SPEC\" -- touch effect'")
            .refused("nestedUserns")
            .effect("ls effect 2>/dev/null")
            .control("unshare -Urm \"$L\" run --spec \"$SPEC\" -- echo up", "up"),
        start(11, "start with a writable path that is missing", "echo '{\"writablePaths\":[\"/no/such\"]}' > $R/data/s; \"$L\" run --spec $R/data/s -- touch effect")
            .refused("it does not exist")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
        start(11, "start the last stage without a jail", "\"$L\" inner '{\"status\":3,\"errors\":2}' touch effect")
            .refused("it is not process 1 of a jail|cannot work")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
    ]
}

fn usable() -> Vec<Row> {
    vec![
        row(12, "make a temporary file (which works)", "test -w $(mktemp) && echo made")
            .refused("made")
            .control("test -w $(mktemp -p $R/data) && echo made", "made"),
        row(12, "use `/dev/fd` (which works)", "bash -c 'cat <(echo through)'")
            .refused("through")
            .control("bash -c 'cat <(echo through)'", "through"),
        row(12, "have a name (which works)", "id -u; test -r /etc/passwd && echo readable")
            .refused("readable")
            .control("test -r /etc/passwd && echo readable", "readable"),
        row(12, "find localhost (which works)", "getent hosts localhost")
            .refused("localhost")
            .control("getent hosts localhost", "localhost"),
        row(12, "see own processes (which works)", "sleep 5 & sleep 0.3; cat /proc/$!/comm")
            .refused("sleep")
            .control("sleep 5 & sleep 0.3; cat /proc/$!/comm; kill $!", "sleep"),
        row(
            12,
            "build with a pipe of jobs (which works)",
            "seq 100 | xargs -P 8 -n 5 echo | wc -l",
        )
        .refused("20")
        .control("seq 100 | xargs -P 8 -n 5 echo | wc -l", "20"),
    ]
}

fn told() -> Vec<Row> {
    vec![
        row(13, "learn names from the marker", "cat /run/kli/sandbox.json; grep -c -e netrc -e aws -e TOKEN /run/kli/sandbox.json")
            .refused("0\n")
            .control("echo netrc | grep -c netrc", "1"),
        row(13, "forge the marker", "echo '{}' > /run/kli/sandbox.json; rm /run/kli/sandbox.json; mv /run/kli /run/x")
            .refused("Read-only file system|busy")
            .effect("ls -d /run/kli /run/x 2>/dev/null")
            .control("mkdir kli && echo '{}' > kli/sandbox.json && rm kli/sandbox.json && mv kli x && rmdir x && echo forged", "forged"),
        start(13, "leave a start file untold", "\"$L\" run --spec \"$SPEC\" -- sh -c 'echo x > .envrc'")
            .refused(".envrc")
            .control("ls .envrc", ".envrc"),
        start(13, "leave a task file untold", "\"$L\" run --spec \"$SPEC\" -- sh -c 'mkdir .vscode; echo {} > .vscode/tasks.json'")
            .refused(".vscode/tasks.json")
            .control("ls .vscode", "tasks.json"),
        start(13, "leave a hook in a nested repository untold", "\"$L\" run --spec \"$SPEC\" -- sh -c 'git init -q sub; mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/pre-commit'")
            .refused("sub/.git/hooks/pre-commit")
            .control("ls sub/.git/hooks/pre-commit", "pre-commit"),
        start(13, "leave a repository in pieces untold", "\"$L\" run --spec \"$SPEC\" -- sh -c 'mkdir -p sub/.git parts/objects parts/refs; echo ref: refs/heads/m > sub/.git/HEAD; echo ../../parts > sub/.git/commondir; printf \"[core]\\nfsmonitor=evil\\n\" > parts/config'")
            .refused("parts/config")
            .control("git -C sub config core.fsmonitor", "evil"),
        start(13, "leave a link to the configuration untold", "\"$L\" run --spec \"$SPEC\" -- ln -sf config .git/COMMIT_EDITMSG")
            .refused(".git/COMMIT_EDITMSG")
            .control("cp .git/config saved; git commit -qm broken --allow-empty; cat .git/config; cp saved .git/config; rm saved .git/COMMIT_EDITMSG", "broken"),
    ]
}

fn next_start() -> Vec<Row> {
    vec![
        start(16, "plant a link in a writable path", "echo '{\"writablePaths\":[\"~/cache\",\"~/cache/sub\"]}' > $R/data/s; \"$L\" run --spec $R/data/s -- sh -c 'rmdir ~/cache/sub; ln -s $R/outside ~/cache/sub'; \"$L\" run --spec $R/data/s -- touch ~/cache/sub/new")
            .refused("is a symbolic link inside")
            .effect("ls $R/outside/new 2>/dev/null")
            .control("touch ~/cache/sub/control && ls $R/outside && rm $R/outside/control", "control"),
        start(16, "plant a link as the state directory", "\"$L\" run --spec \"$SPEC\" -- sh -c 'rm -rf ~/.local/state/kli/x; ln -s $R/outside ~/.local/state/kli/x'; echo '{\"writablePaths\":[\"~/.local/state/kli/x\"]}' > $R/data/s; \"$L\" run --spec $R/data/s -- touch ~/.local/state/kli/x/new")
            .refused("symbolic link")
            .effect("ls $R/outside/new 2>/dev/null")
            .control("touch ~/.local/state/kli/x/control && ls $R/outside && rm $R/outside/control", "control"),
        start(16, "take a hidden file to another name", "echo '{\"denyRead\":[\"./conf/key\",\"./links/way/key\"]}' > $R/data/s; \"$L\" run --spec $R/data/s -- sh -c 'mv conf a; mv links b; mv links/way links/c; rm links/way'; \"$L\" run --spec $R/data/s -- sh -c 'cat */key b/way/key'")
            .setup("mkdir -p conf target links && echo SECRET-KEY | tee conf/key target/key && ln -s ../target links/way")
            .refused("busy")
            .effect("ls -d a b links/c 2>/dev/null")
            .control("mv conf a && mv links b && cat a/key b/way/key", "SECRET-KEY"),
        start(16, "bring a bubblewrap along", "cp /usr/bin/true ./bwrap; \"$L\" run --spec \"$SPEC\" --bwrap ./bwrap -- touch effect")
            .refused("which the inside can write")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
        start(16, "bring a specification along", "echo '{}' > spec.json; \"$L\" run --spec spec.json -- touch effect")
            .refused("which the inside can write")
            .effect("ls effect 2>/dev/null")
            .control(UP, "up"),
        row(16, "change kli's configuration", "mkdir -p ~/.config/kli; echo '{}' > ~/.config/kli/settings.json; mv ~/.config ~/x")
            .setup("mkdir -p ~/.config/kli")
            .spec(r#"{"writablePaths":["~/.config"]}"#)
            .refused("Read-only file system|busy")
            .effect("ls ~/.config/kli/settings.json ~/x 2>/dev/null")
            .control("touch ~/.config/kli/y && rm ~/.config/kli/y && echo made", "made"),
    ]
}
