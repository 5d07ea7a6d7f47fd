//! Law 9: what makes the host run code at its next git command.

use super::{Row, row};

const READ_ONLY: &str = "Read-only file system|ould not lock|ould not write|busy|not permitted";

/// `git` in the specification as it is by default.
const DEFAULT: &str = "{}";

pub(super) fn rows() -> Vec<Row> {
    let git = |attempt, script: &str| row(9, attempt, script.to_owned()).spec(DEFAULT);
    vec![
        git("write a hook", "echo x > .git/hooks/pre-commit && echo SEC''RET")
            .setup("mkdir -p .git/hooks")
            .refused(READ_ONLY)
            .effect("ls .git/hooks/pre-commit 2>/dev/null")
            .control("touch .git/hooks/pre-commit && rm .git/hooks/pre-commit && echo made", "made"),
        git("set `core.fsmonitor`", "git config core.fsmonitor 'touch pwned'")
            .refused(READ_ONLY)
            .effect("git config core.fsmonitor")
            .control("git config x.y z && git config --unset x.y && echo set", "set"),
        git("append to the configuration", "echo '[alias] x = !sh' >> .git/config")
            .refused(READ_ONLY)
            .effect("git config alias.x")
            .control("echo '#' >> .git/config && echo written", "written"),
        git("replace the git directory", "mv .git other; mkdir .git; ls -d other")
            .refused(READ_ONLY)
            .effect("ls -d other 2>/dev/null")
            .control("mv .git other && mv other .git && echo moved", "moved"),
        git("replace the hooks", "rm -rf .git/hooks; mv .git/hooks .git/x; ls -d .git/x")
            .setup("mkdir -p .git/hooks")
            .refused(READ_ONLY)
            .effect("ls -d .git/x 2>/dev/null")
            .control("mv .git/hooks .git/x && mv .git/x .git/hooks && echo moved", "moved"),
        git("write attributes", "echo '* filter=x' > .git/info/attributes; sleep 0.3; echo x > .git/info/attributes")
            .setup("mkdir -p .git/info && touch .git/info/attributes")
            .refused(READ_ONLY)
            .effect("cat .git/info/attributes")
            .control("touch .git/info/attributes && echo written", "written"),
        git("write `config.worktree`", "echo '[core] x=y' > .git/config.worktree")
            .setup("touch .git/config.worktree")
            .refused(READ_ONLY)
            .effect("cat .git/config.worktree")
            .control("touch .git/config.worktree && echo written", "written"),
        git("change what direnv runs", "echo x > .envrc; mv .envrc y")
            .setup("echo direnv > .envrc")
            .refused(READ_ONLY)
            .effect("grep -L direnv .envrc")
            .control("echo direnv > .envrc && echo written", "written"),
        git("change the project's settings for kli", "echo '{}' > .kli/settings.json; mv .kli other")
            .setup("mkdir -p .kli && echo '{\"x\":1}' > .kli/settings.json")
            .refused(READ_ONLY)
            .effect("[ -d .kli ] && grep -L x .kli/settings.json")
            .control("echo '{\"x\":1}' > .kli/settings.json && echo written", "written"),
        row(9, "commit in a repository that is read-only", "echo x > new && git add new && git commit -qm x")
            .spec(r#"{"git":"read-only"}"#)
            .refused("Read-only file system")
            .effect("git log --oneline | tail -n +2")
            .control("touch n && git add n && git reset -q && rm n && echo added", "added"),
        row(9, "gain a directory by a forged `.git`", "cat ~/.ssh/id; touch ~/.ssh/x")
            .setup("mkdir -p ~/.ssh && echo key > ~/.ssh/id && mv .git ../git && echo \"gitdir: $HOME/.ssh\" > .git")
            .spec(DEFAULT)
            .refused("Read-only file system")
            .effect("ls ~/.ssh/x 2>/dev/null")
            .control("touch ~/.ssh/y && rm ~/.ssh/y && echo made", "made"),
        git("dirty what `git status` shows", "git status --porcelain --ignored | sed \"s/^/SEC''RET /; s/.*!! [.]env$/as outside/\"")
            .setup("printf '.env\\n' >> .git/info/exclude")
            .refused("as outside")
            .control("git status --porcelain --ignored", "!! .env"),
        git("commit (which works)", "echo x > new && git add new && git commit -qm new && git log --oneline | wc -l")
            .refused("2")
            .control("git log --oneline | wc -l", "2"),
    ]
}
