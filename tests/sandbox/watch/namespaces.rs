//! What is not kept: with `allowUserNamespaces` a mask is put back in the jail's own mount namespace, not
//! in one that the inside made. docs/confinement.md says so, and `explain`.

use super::*;

const SPEC: &str = r#"{"denyRead":["./.env","~/.netrc"],"allowUserNamespaces":true}"#;

fn check(world: &World, unshare: &str) {
    let env = world.file("home/project/.env", "SECRET-1");
    let netrc = world.file("home/.netrc", "SECRET-HOME");
    world.spec(SPEC);
    let is_there = |name: &str| {
        assert!(wait_for(Duration::from_secs(10), || world.workspace.join(name).exists()));
    };
    let look = "cat .env ~/.netrc";
    let mut talk = Talk::start(world);
    talk.says(&format!(
        "{unshare} sh -c 'touch up; until [ -e go ]; do sleep .02; done; {look} > read; \
         umount .env 2> said; (echo x > ~/.netrc) 2>> said; touch done' &"
    ));
    is_there("up");
    // As long as the host leaves it alone, the copy of the mask hides it there, too.
    assert_eq!(talk.says(&format!("{unshare} {look}")), "");
    has(&talk.says(&format!("{unshare} umount .env; cat .env")), &["umount"]);
    replace(&env, "SECRET-2");
    replace(&netrc, "SECRET-HOME-2");
    assert_eq!(talk.says(look), "", "it is put back in the jail's own");
    assert_eq!(talk.says(&format!("{unshare} {look}")), "", "and is there in a later one");
    talk.says("touch go");
    is_there("done");
    let read = fs::read_to_string(world.workspace.join("read")).unwrap();
    assert_eq!(read, "SECRET-2", "the overlay holds there as well");
    let said = fs::read_to_string(world.workspace.join("said")).unwrap();
    has(&said, &["umount", "Read-only file system"]);
}

#[test]
fn a_replaced_name_is_seen_in_a_namespace_that_the_inside_made_before_and_in_no_other() {
    for who in [crate::jail::Who::User, crate::jail::Who::Root] {
        for unshare in ["unshare -Um", "unshare -Um --propagation unchanged"] {
            check(&World::new(who), unshare);
        }
    }
    for_both(|world| {
        world.spec(SPEC);
        let mut explain = world.command(world.launcher());
        let told = ok(&explain.arg("explain").arg(world.spec_file()).output().unwrap());
        has(&told, &["a namespace that the inside made before sees the new content"]);
        // Control: without the permission there is no such namespace.
        world.spec(r#"{"denyRead":["./.env","~/.netrc"]}"#);
        has(&err(&world.inside("unshare -Um cat .env")), &["unshare failed"]);
    });
}
