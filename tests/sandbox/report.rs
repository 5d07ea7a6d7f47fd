//! Law 13: what the launcher tells at exit of files that the inside left for the host to run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::jail::{World, err, for_both, has, ok, out, wait_for};

/// Nothing of what may be told is refused, so that the telling is seen.
const OPEN: &str = r#"{"git":"unprotected","protect":[]}"#;

const GIT: &str = "git -c user.name=n -c user.email=e@e -c init.defaultBranch=main";

/// A repository of the world's user in the workspace, made on the host.
fn repository(world: &World) {
    ok(&world.plainly(&format!("{GIT} init -q . && {GIT} commit -q --allow-empty -m one")));
}

/// Runs a script inside and returns the lines that the launcher told.
fn told(world: &World, script: &str) -> String {
    // What the test made in the same tick of the kernel's clock would count as new.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let run = world.inside(script);
    assert!(run.status.success(), "{run:?}");
    err(&run)
}

#[track_caller]
fn has_line(text: &str, name: &str, words: &str) {
    let line = format!("  `{name}`: {words}");
    assert!(text.lines().any(|it| it.starts_with(&line)), "`{line}` is missing in: {text}");
}

#[test]
fn work_that_runs_nothing_on_the_host_is_not_told() {
    for_both(|world| {
        world.spec(OPEN);
        repository(world);
        world.file("home/project/.envrc", "");
        world.file("home/project/.vscode/tasks.json", "{}");
        world.file("home/project/.claude/settings.json", "{}");
        world.file("home/project/old/.git/notes", "");
        let text = told(
            world,
            &format!(
                "echo x > file; echo x > Makefile; echo x > package.json; mkdir -p src .github/workflows; \
                 echo x > src/.env; echo x > .github/workflows/ci.yml; echo x > AGENTS.md; ln -s file link; \
                 ln -s /usr/bin/perl perl; echo x > .claude/notes.md; echo x > .vscode/words.txt; \
                 git add file; {GIT} commit -qm two; git branch side; {GIT} init -q nested; \
                 git -C nested config user.name me; git remote add o https://host/x; \
                 git config branch.main.remote o; {GIT} clone -q . copy; \
                 git worktree add -q ../project/tree side; {GIT} -C tree commit -q --allow-empty -m three"
            ),
        );
        assert_eq!(text, "");
        assert!(
            world.workspace.join("tree/.git").exists()
                && world.workspace.join("copy/.git").exists()
        );
    });
}

#[test]
fn each_kind_of_file_is_told_and_only_when_this_run_made_it() {
    let files = [
        (".envrc", "direnv"),
        (".mise.toml", "direnv and its kin"),
        ("sub/.envrc", "direnv"),
        (".kli/settings.json", "kli reads it"),
        (".kli/extensions/a/b.scm", "kli reads it"),
        (".vscode/tasks.json", "an editor"),
        (".vscode/launch.json", "an editor"),
        (".vscode/settings.json", "an editor"),
        ("deep/er/.vscode/settings.json", "an editor"),
        ("all.code-workspace", "an editor"),
        (".idea/runConfigurations/x.xml", "an editor"),
        (".idea/workspace.xml", "an editor"),
        (".devcontainer/devcontainer.json", "an editor"),
        (".zed/tasks.json", "an editor"),
        (".nvim.lua", "an editor"),
        (".exrc", "an editor"),
        (".dir-locals.el", "an editor"),
        (".mcp.json", "an agent"),
        (".claude/settings.json", "an agent"),
        (".claude/hooks/x.sh", "an agent"),
        (".cursor/mcp.json", "an agent"),
        (".gemini/settings.json", "an agent"),
        (".codex/config.toml", "an agent"),
        ("opencode.json", "an agent"),
        (".husky/pre-commit", "a hook of version control"),
        (".pre-commit-config.yaml", "a hook of version control"),
        ("lefthook.yml", "a hook of version control"),
        (".hg/hgrc", "Mercurial"),
        (".jj/repo/config.toml", "Mercurial or Jujutsu"),
        (".gdbinit", "a debugger"),
    ];
    for_both(|world| {
        world.spec(OPEN);
        let mut script = String::new();
        for (name, _) in files {
            script = format!("{script}mkdir -p \"$(dirname {name})\" && echo x > {name}; ");
        }
        let text = told(world, &script);
        has(&text, &["kli-sandbox: note: created or changed in this run", "look at each first:\n"]);
        for (name, words) in files {
            has_line(&text, name, words);
        }
        assert_eq!(text.lines().count(), files.len() + 1, "{text}");
        // The same files, untouched.
        assert_eq!(told(world, "cat .envrc .vscode/*.json >/dev/null; touch other"), "");
        // One of them changed, and one made executable: its status is new.
        let text = told(world, "echo y >> .vscode/tasks.json; chmod +x .husky/pre-commit");
        has(&text, &["look at each first"]);
        has_line(&text, ".vscode/tasks.json", "an editor");
        has_line(&text, ".husky/pre-commit", "a hook");
        assert_eq!(text.lines().count(), 3, "{text}");
        has(&told(world, "echo y > .envrc"), &["look at it first"]);
    });
}

#[test]
fn hooks_and_configuration_of_the_own_repository_are_compared() {
    for_both(|world| {
        world.spec(OPEN);
        repository(world);
        world.file("home/project/.git/hooks/post-checkout", "#!/bin/sh\n");
        world.file("home/project/.git/hooks/post-merge", "#!/bin/sh\n");
        let text = told(
            world,
            "echo x > .git/hooks/pre-commit; echo x >> .git/hooks/post-checkout; \
             rm .git/hooks/post-merge; echo x > .git/hooks/push.sample; \
             git config core.fsmonitor ./evil; git config alias.st '!evil'; git config user.name me; \
             mkdir -p .git/info; echo '* filter=x' > .git/info/attributes; echo ../../x > .git/commondir",
        );
        has_line(&text, ".git/hooks/pre-commit", "git runs it");
        has_line(&text, ".git/hooks/post-checkout", "git runs it");
        has_line(&text, ".git/hooks/post-merge", "a hook that was there at the start is gone");
        has_line(
            &text,
            ".git/config",
            "git runs or reads what it names: `core.fsmonitor`, `alias.st`",
        );
        has_line(&text, ".git/info/attributes", "git");
        has_line(&text, ".git/commondir", "git");
        assert_eq!(text.lines().count(), 7, "{text}");
        ok(&world.plainly("rm .git/commondir"));
        assert_eq!(told(world, "git config user.name other; cat .git/config > /dev/null"), "");
        // A change and its way back is none.
        let back = "cp -p .git/config c; git config core.pager x; cat c > .git/config";
        assert_eq!(told(world, back), "");
        has_line(
            &told(world, "git config remote.a.url 'ext::sh -c evil'"),
            ".git/config",
            "git runs or reads what it names: `remote.a.url`",
        );
        has_line(
            &told(world, "printf '[core]\\n x = \"' >> .git/config"),
            ".git/config",
            "git may run what it names, and it is broken",
        );
    });
}

#[test]
fn what_the_configuration_names_in_the_workspace_is_told() {
    for_both(|world| {
        repository(world);
        world.file("home/project/tools/hooks/pre-commit", "#!/bin/sh\n");
        world.file("home/project/tools/hooks/pre-push", "#!/bin/sh\n");
        world.file("home/project/tools/extra.gitconfig", "");
        world.file("home/project/tools/watch", "");
        world.file("home/project/tools/other", "");
        ok(&world.plainly(
            "git config core.hooksPath tools/hooks; git config include.path ../tools/extra.gitconfig; \
             git config core.fsmonitor 'tools/watch --fast'",
        ));
        let text = told(
            world,
            "for f in hooks/pre-commit extra.gitconfig watch other; do echo x >> tools/$f; done",
        );
        let words = "git runs it: the repository's configuration names it";
        for name in ["hooks/pre-commit", "extra.gitconfig", "watch"] {
            has_line(&text, &format!("tools/{name}"), words);
        }
        assert_eq!(text.lines().count(), 4, "{text}");
    });
}

#[test]
fn other_repositories_in_the_workspace_are_told_by_what_they_make_git_run() {
    for_both(|world| {
        world.spec(OPEN);
        repository(world);
        ok(&world.plainly(&format!("{GIT} init -q a/b && {GIT} init -q --bare quiet.git")));
        let text = told(
            world,
            &format!(
                "{GIT} init -q new; git -C new config core.sshCommand evil; echo x > a/b/.git/hooks/post-commit; \
                 {GIT} init -q --bare bare; git -C bare config filter.x.clean evil; \
                 mkdir -p .git/modules; {GIT} init -q --bare .git/modules/m; echo x > .git/modules/m/hooks/update; \
                 mkdir -p d e; echo 'gitdir: /srv/evil.git' > d/.git; ln -s ../a e/.git; \
                 {GIT} -C quiet.git config user.name x"
            ),
        );
        has_line(&text, "new/.git/config", "git runs or reads what it names: `core.sshcommand`");
        has_line(&text, "a/b/.git/hooks/post-commit", "git runs it");
        has_line(&text, "bare/config", "git runs or reads what it names: `filter.x.clean`");
        has_line(&text, ".git/modules/m/hooks/update", "git runs it");
        has_line(&text, "d/.git", "git takes the repository `/srv/evil.git`");
        has_line(&text, "e/.git", "git takes the repository it leads to");
        assert_eq!(text.lines().count(), 7, "{text}");
    });
}

#[test]
fn commands_in_a_rebase_that_waits_are_told() {
    for_both(|world| {
        world.spec(OPEN);
        repository(world);
        ok(&world.plainly(&format!("{GIT} commit -q --allow-empty -m two")));
        let rebase = |line: &str| {
            format!("GIT_SEQUENCE_EDITOR='sed -i \"1i {line}\"' {GIT} rebase -q -i --root; true")
        };
        let text = told(world, &rebase("break"));
        assert!(!text.contains("git-rebase-todo"), "{text}");
        assert!(world.workspace.join(".git/rebase-merge/git-rebase-todo").exists());
        let text = told(world, "echo 'exec evil' >> .git/rebase-merge/git-rebase-todo");
        let name = ".git/rebase-merge/git-rebase-todo";
        has_line(&text, name, "git runs its `exec` lines when the rebase goes on");
    });
}

#[test]
fn a_directory_moved_into_place_brings_old_files_along() {
    for_both(|world| {
        world.spec(OPEN);
        world.file("home/project/template/tasks.json", "{}");
        world.file("home/project/template/sub/hooks/run.sh", "");
        world.file("home/project/crate/HEAD", "ref: refs/heads/main\n");
        world.file("home/project/crate/config", "[core]\n pager = evil\n");
        world.dir("home/project/crate/objects");
        world.dir("home/project/crate/refs");
        world.dir("home/project/nest");
        std::thread::sleep(Duration::from_millis(20));
        let text = told(
            world,
            "mv template/sub .claude; mv template .vscode; mv crate nest/.git; touch nest/.git/x; rm nest/.git/x",
        );
        has_line(&text, ".claude/hooks/run.sh", "an agent");
        has_line(&text, ".vscode/tasks.json", "an editor");
        has_line(&text, "nest/.git/config", "git runs or reads what it names: `core.pager`");
        assert_eq!(text.lines().count(), 4, "{text}");
    });
}

#[test]
fn links_out_of_the_workspace_are_told() {
    for_both(|world| {
        world.spec(OPEN);
        repository(world);
        world.link("home/project/before", "/etc/hostname");
        let text = told(
            world,
            "mkdir in; ln -s ../../.ssh/id a; ln -s /etc/cron.d/job in/b; ln -s ../file in/c; \
             mkdir -p .git/logs; ln -sf /home/other/.bashrc .git/logs/HEAD; ln -sf ~/.profile .git/COMMIT_EDITMSG",
        );
        let home = world.root.join(".ssh/id");
        has_line(&text, "a", &format!("a link out of it, to `{}`", home.display()));
        has_line(&text, "in/b", "a link out of it, to `/etc/cron.d/job`");
        has_line(&text, ".git/logs/HEAD", "a link out of it, to `/home/other/.bashrc`");
        has_line(&text, ".git/COMMIT_EDITMSG", "a link out of it, to");
        assert_eq!(text.lines().count(), 5, "{text}");
    });
}

#[test]
fn a_repository_in_pieces_is_told_as_one() {
    for_both(|world| {
        world.spec(OPEN);
        repository(world);
        let evil = |at: &str, name: &str| {
            format!("printf '[core]\\nfsmonitor=\"touch $HOME/ran-{name};false\"\\n' > {at}; ")
        };
        let head = |at: &str| format!("mkdir -p {at}; echo 'ref: refs/heads/m' > {at}/HEAD; ");
        let whole = |at: &str| head(at) + &format!("mkdir -p {at}/objects {at}/refs; ");
        let text = told(
            world,
            &[
                // Its configuration lies in a directory that has no `HEAD`.
                head("apart/.git") + "echo ../../y > apart/.git/commondir; mkdir -p y/objects y/refs; ",
                evil("y/config", "apart"),
                head("w/worktrees/i") + "mkdir -p w/objects w/refs linked; echo ../.. > w/worktrees/i/commondir; ",
                "echo $PWD/linked/.git > w/worktrees/i/gitdir; ".into(),
                String::from("echo 'gitdir: ../w/worktrees/i' > linked/.git; ") + &evil("w/config", "linked"),
                // Its parts are links.
                head("parts/.git") + "mkdir -p t/o t/r; ln -s ../../t/o parts/.git/objects; ",
                String::from("ln -s ../../t/r parts/.git/refs; ") + &evil("parts/.git/config", "parts"),
                whole("link/.git") + &evil("words", "link") + "ln -s ../../words link/.git/config; ",
                whole("hooks/.git") + "mkdir tools; ln -s ../../tools hooks/.git/hooks; ",
                "printf '#!/bin/sh\ntouch $HOME/ran-hooks' > tools/pre-commit; chmod +x tools/pre-commit; ".into(),
                // It lies where git keeps nothing that it runs.
                whole(".git/objects/deep") + &evil(".git/objects/deep/config", "deep"),
                "mkdir deep; echo 'gitdir: ../.git/objects/deep' > deep/.git".into(),
            ]
            .concat(),
        );
        let names = ["apart", "linked", "parts", "link", "hooks", "deep"];
        for name in names {
            let git = format!("cd {name} && {GIT} commit -q --allow-empty -m x; {GIT} status");
            let run = world.plainly(&git);
            assert!(world.root.join("home/ran-".to_owned() + name).exists(), "{name}: {run:?}");
        }
        has_line(&text, "apart/.git/commondir", "git takes hooks and configuration from there");
        for config in ["y/config", "w/config", "parts/.git/config"] {
            has_line(&text, config, "git runs or reads what it names: `core.fsmonitor`");
        }
        has_line(&text, "link/.git/config", "git");
        has_line(&text, "hooks/.git/hooks", "git takes hooks or configuration from where it leads");
        let deep = world.workspace.join(".git/objects/deep");
        has_line(&text, "deep/.git", &format!("git takes the repository `{}`", deep.display()));
        assert_eq!(text.lines().count(), 8, "{text}");
    });
}

#[test]
fn links_to_what_is_read_only_inside_are_told() {
    for_both(|world| {
        repository(world);
        world.file("home/project/.envrc", "");
        world.file("home/project/.env", "SECRET");
        world.dir("home/project/sub");
        world.dir("home/kept");
        world.link("home/project/old", "../kept");
        world.link("home/project/git", ".git");
        world.link("home/project/here", "sub");
        world.spec(r#"{"denyRead":["./.env"]}"#);
        let text = told(
            world,
            &format!(
                "echo x > file; git add file; \
                 printf '[core]\nrepositoryformatversion=0\nfsmonitor=\"touch $HOME/ran;false\"' | {GIT} commit -q -F -; \
                 ln -sf config .git/COMMIT_EDITMSG; ln -s hooks/pre-commit .git/MERGE_MSG; \
                 ln -s ../.envrc sub/a; ln -s ../git/config sub/b; ln -s ../old/.bashrc sub/c; \
                 ln -s .env d; ln -s here/a e; ln -s sub/none f; ln -s $PWD/here g"
            ),
        );
        let config = world.workspace.join(".git/config");
        let at =
            |path: &std::path::Path| format!("a link to what was read-only, `{}`", path.display());
        has_line(&text, ".git/COMMIT_EDITMSG", &at(&config));
        has_line(&text, ".git/MERGE_MSG", &at(&world.workspace.join(".git/hooks/pre-commit")));
        has_line(&text, "sub/a", &at(&world.workspace.join(".envrc")));
        has_line(&text, "sub/b", &at(&config));
        let kept = world.root.join("home/kept/.bashrc");
        has_line(&text, "sub/c", &format!("a link out of it, to `{}`", kept.display()));
        has_line(&text, "d", &at(&world.workspace.join(".env")));
        has_line(&text, "e", &at(&world.workspace.join(".envrc")));
        assert_eq!(text.lines().count(), 8, "{text}");
        // What the first one is good for.
        world.plainly(&format!("{GIT} commit -q --amend --no-edit --allow-empty; git status"));
        assert!(world.root.join("home/ran").exists(), "{}", fs::read_to_string(config).unwrap());
    });
}

#[test]
fn an_old_link_to_a_file_that_is_new_is_told() {
    for_both(|world| {
        world.spec(OPEN);
        world.file("home/project/config/env", "");
        world.file("home/project/config/editor/tasks.json", "");
        world.link("home/project/.envrc", "config/env");
        world.link("home/project/.vscode", "config/editor");
        world.link("home/project/.claude", ".");
        let text =
            told(world, "echo x > config/env; echo x > config/editor/tasks.json; echo x > file");
        has_line(&text, ".envrc", "direnv");
        has_line(&text, ".vscode/tasks.json", "an editor");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(told(world, "true"), "");
    });
}

#[test]
fn start_files_in_a_writable_home_are_told() {
    for_both(|world| {
        world.spec(r#"{"writablePaths":["~/"],"protect":[]}"#);
        world.file("home/.bashrc", "");
        world.file("home/.config/fish/conf.d/old.fish", "");
        let text = told(
            world,
            "echo x >> ~/.bashrc; echo x > .bashrc; mkdir -p ~/.config/fish/conf.d ~/.config/systemd/user ~/.local/bin \
             ~/.config/autostart ~/.ssh; echo x > ~/.config/fish/conf.d/a.fish; \
             echo x > ~/.config/systemd/user/a.service; echo x > ~/.local/bin/ls; \
             echo x > ~/.config/autostart/a.desktop; echo x > ~/.ssh/config; echo x > ~/.gitconfig; echo x > ~/notes",
        );
        let home = |name: &str| world.home.join(name).display().to_string();
        for (name, words) in [
            (".bashrc", "a shell or a session"),
            (".config/fish/conf.d/a.fish", "a shell or a session"),
            (".config/systemd/user/a.service", "the session or its services"),
            (".config/autostart/a.desktop", "the session or its services"),
            (".local/bin/ls", "it is found on PATH"),
            (".ssh/config", "ssh reads it"),
            (".gitconfig", "git, direnv, an editor or an agent"),
        ] {
            has_line(&text, &home(name), words);
        }
        assert_eq!(text.lines().count(), 8, "{text}");
        // A single file, and a directory that begins in the middle of a rule.
        world.spec(r#"{"writablePaths":["~/.bashrc","~/.config/systemd"]}"#);
        let text = told(world, "echo y > ~/.bashrc; echo y > ~/.config/systemd/user/b.service");
        has_line(&text, &home(".bashrc"), "a shell or a session");
        has_line(&text, &home(".config/systemd/user/b.service"), "the session or its services");
        assert_eq!(text.lines().count(), 3, "{text}");
    });
}

#[test]
fn installed_packages_are_counted_not_listed() {
    for_both(|world| {
        world.spec(OPEN);
        let text = told(
            world,
            "for p in a b c; do mkdir -p node_modules/$p/.vscode; echo x > node_modules/$p/.vscode/settings.json; done",
        );
        has_line(&text, "node_modules", "3 such files in installed packages");
        assert_eq!(text.lines().count(), 2, "{text}");
        let text = told(world, "for n in $(seq 60); do mkdir d$n; echo > d$n/.envrc; done");
        has(&text, &["  and 20 more\n"]);
        assert_eq!(text.lines().count(), 42, "{text}");
    });
}

#[test]
fn names_are_told_so_that_they_drive_no_terminal() {
    for_both(|world| {
        world.spec(OPEN);
        let text = told(
            world,
            "d=$(printf 'a\\033[2J\\nkli-sandbox: fine\\342\\200\\256`x\\377'); mkdir \"$d\"; echo x > \"$d/.envrc\"",
        );
        let name = "a\\u{1b}[2J\\nkli-sandbox: fine\\u{202e}\\`x\\xff/.envrc";
        assert!(text.contains(&format!("  `{name}`: direnv")), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
        assert_eq!(text.lines().count(), 2, "{text}");
    });
}

#[test]
fn strange_trees_neither_stop_nor_mislead_it() {
    for_both(|world| {
        world.spec(OPEN);
        let text = told(
            world,
            "mkfifo .envrc; mkdir .vscode; mkfifo .vscode/tasks.json; ln -s loop loop; \
             mkdir locked; echo x > locked/.envrc; chmod 000 locked; \
             n=$(printf 'x%.0s' $(seq 200)); top=$PWD; for i in $(seq 40); do mkdir $n && cd -P $n || exit; done; \
             echo x > .envrc; cd $top; true",
        );
        has_line(&text, ".envrc", "direnv");
        has_line(&text, ".vscode/tasks.json", "an editor");
        // What its owner has locked is no secret from who may unlock it.
        has_line(&text, "locked/.envrc", "direnv");
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 400), "{text}");
        assert!(text.contains("x…x") && text.contains("x/.envrc`: direnv"), "{text}");
        ok(&world.plainly("chmod 700 locked"));
    });
}

#[test]
fn the_exit_code_is_unchanged_and_a_killed_run_is_told_of_as_well() {
    for_both(|world| {
        world.spec(OPEN);
        let run = world.inside("echo x > .envrc; echo out; exit 7");
        assert_eq!((run.status.code(), out(&run).as_str()), (Some(7), "out\n"));
        has_line(&err(&run), ".envrc", "direnv");
        let run = world.inside("echo y > .envrc; kill -KILL $$");
        assert!(!run.status.success());
        has_line(&err(&run), ".envrc", "direnv");
        // What a left daemon writes is seen as long as it lives.
        let run = world.inside("rm .envrc; (sleep 0.2; echo z > .envrc; sleep 60) & exit 0");
        assert_eq!(run.status.code(), Some(0));
        assert_eq!(
            world.workspace.join(".envrc").exists(),
            err(&run).contains(".envrc"),
            "{run:?}"
        );
        // Without a start there is nothing to tell.
        world.spec(r#"{"writablePaths":["/absent/place"]}"#);
        assert_eq!(err(&world.inside("echo x > .envrc")).lines().count(), 1);
    });
}

/// Runs a script on the host while the inside waits, and returns what was told.
fn meanwhile(world: &World, script: &str) -> String {
    let mut run =
        world.run_with(&[], &["sh", "-c", "touch up; until test -e go; do sleep 0.02; done"]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_for(Duration::from_secs(20), || world.workspace.join("up").exists()));
    ok(&world.plainly(script));
    ok(&world.plainly("touch go"));
    let run = run.wait_with_output().unwrap();
    assert!(run.status.success(), "{run:?}");
    ok(&world.plainly("rm up go"));
    err(&run)
}

#[test]
fn what_the_host_does_meanwhile_is_told_by_its_content() {
    for_both(|world| {
        repository(world);
        // As `git push -u` and `git remote add` write it.
        let quiet = "git config branch.main.remote o; git config branch.main.merge refs/heads/main; \
             git remote add o ssh://host/x";
        assert_eq!(meanwhile(world, quiet), "");
        has_line(
            &meanwhile(world, "git config core.fsmonitor ./evil"),
            ".git/config",
            "git runs or reads what it names: `core.fsmonitor`",
        );
    });
}

#[test]
fn for_root_a_setuid_file_is_told() {
    for_both(|world| {
        world.spec(OPEN);
        world.file("home/project/tool", "");
        world.file("home/project/plain", "");
        let text = meanwhile(world, "chmod 4755 tool; chmod 755 plain");
        if ok(&world.plainly("id -u")) == "0\n" {
            has_line(&text, "tool", "whoever runs it gets its owner's rights");
            assert_eq!(text.lines().count(), 2, "{text}");
        } else {
            assert_eq!(text, "");
        }
        let mode = fs::metadata(world.workspace.join("tool")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o4755);
    });
}
