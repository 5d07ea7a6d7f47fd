//! Law 9 for the pointer of a linked worktree that is made while the jail runs: nobody inside keeps a
//! hold of it by which it says something else later.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::super::git::{Layout, for_all, is_gone};
use super::ended;
use crate::jail::{has, ok};

const LAYOUTS: [Layout; 4] = [Layout::Clone, Layout::Below, Layout::Worktree, Layout::Bare];

#[test]
fn what_the_inside_holds_of_a_pointer_is_the_pointer_no_more() {
    for_all(&LAYOUTS, |repository| {
        let place = repository.common.join("worktrees/new");
        for hold in [
            // Open for writing, as a mapping is, whose changes no event tells.
            "exec 9<>$P; sleep .5; printf '../ev\\n' >&9",
            "rm $P; printf '../..\\n' > $C/worktrees/new/t; exec 9<>$C/worktrees/new/t; mv $C/worktrees/new/t $P; sleep .5; printf '../ev\\n' >&9",
            // Another name, of which the directory of the worktree has no event.
            "ln $P $C/worktrees/new/other; sleep .5; printf '../ev\\n' > $C/worktrees/new/other",
            "ln $P $C/worktrees/new/other; sleep .5; printf '../ev\\n' > $C/worktrees/new/other; ln -f $P $C/worktrees/new/other",
        ] {
            repository.outside(
                "rm -rf $C/worktrees/new $C/worktrees/new/other; git worktree prune; git branch -D new || :",
            );
            let script = format!(
                "P=$C/worktrees/new/commondir; git worktree add -q /tmp/new || exit 1; {hold} || \
                 exit 2; sleep .3; cat $P; git -C /tmp/new status --porcelain"
            );
            assert_eq!(ok(&repository.inside(&script)), "../..\n", "{hold}");
            let text = fs::read_to_string(place.join("commondir")).unwrap();
            assert_eq!(text, "../..\n", "{hold}");
            // A later run may write by any name that is left.
            assert_eq!(fs::metadata(place.join("commondir")).unwrap().nlink(), 1, "{hold}");
            assert!(is_gone(&place.join("commondir.new")), "{hold}");
        }
        // Control: outside the other name does change it.
        repository.outside(
            "rm -f $C/worktrees/new/other; ln $C/worktrees/new/commondir $C/worktrees/new/other; echo ../ev > $C/worktrees/new/other",
        );
        assert_eq!(fs::read_to_string(place.join("commondir")).unwrap(), "../ev\n");
    });
}

#[test]
fn a_pipe_is_no_pointer() {
    for_all(&LAYOUTS, |repository| {
        for (after, wait) in [("; sleep 20; touch effect", true), ("", false)] {
            repository
                .outside("rm -rf $C/worktrees/new; git worktree prune; git branch -D new || :");
            let tried = repository.inside(&format!(
                "git worktree add -q /tmp/new && rm $C/worktrees/new/commondir && mkfifo \
                 $C/worktrees/new/commondir{after}"
            ));
            has(&ended(&tried), &["worktrees/new/commondir", "was planted"]);
            assert!(is_gone(&repository.common.join("worktrees/new/commondir")), "{wait}");
            assert!(!repository.world.workspace.join("effect").exists());
        }
    });
}
