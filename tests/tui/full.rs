//! A disk that is full: what is chosen holds, what was chosen stays, and nothing half of either is left.

use std::{fs, process::Command};

use serde_json::{Value, json};

use super::{Tty, copy, replay};
use crate::harness::Env;

#[test]
fn a_choice_on_a_full_disk_is_said_and_leaves_the_earlier_ones_whole() {
    let env = Env::new();
    replay(&env, &json!({ "text": "heard" }).to_string());
    let before = "{\"theme\":\"light\"}";
    // The whole state directory; what fills it is for a command of the person's own to remove.
    let script = format!(
        "set -e; state=~/.local/state/kli; mkdir -p $state ~/copied\n\
         mount -t tmpfs -o mode=700,size=64k small $state\n\
         printf %s '{before}' > $state/ui.json; chmod 600 $state/ui.json\n\
         cat /dev/zero > $state/filler 2> /dev/null || :\n\
         code=0; \"$0\" --no-session || code=$?; rm -f $state/filler\n\
         cp -a $state/. ~/copied/; exit $code"
    );
    let kli = env.command(&[]);
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c"]).arg(script).arg(kli.get_program());
    copy(&kli, &mut command);
    let mut tty = Tty::start(&command, 40, 200);
    tty.sees("say what to do");
    tty.press("/theme\r");
    tty.sees("* light");
    tty.press("/theme dark\r");
    tty.sees("theme: dark");
    tty.sees("for this conversation only: ");
    tty.sees("no space left on device");
    let said = tty.screen().matches("no space left").count();
    assert_eq!(said, 1, "{}", tty.screen());
    tty.press("!!cat ~/.local/state/kli/ui.json; ls -A ~/.local/state/kli | sort | tr '\\n' ' '; echo $((1+1)) names\r");
    tty.sees("2 names");
    assert!(tty.screen().contains(before), "{}", tty.screen());
    assert!(tty.screen().contains("filler ui.json 2 names"), "{}", tty.screen());
    // The control: with room it is kept, beside what was chosen before.
    tty.press("!!rm ~/.local/state/kli/filler; echo $((2+1)) left\r");
    tty.sees("3 left");
    tty.press("/effort high\r");
    tty.sees("kept for the next start");
    tty.press("\x03\x03");
    assert_eq!(tty.ends(), Some(0));
    let kept = fs::read_to_string(env.home().join("copied/ui.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept, json!({ "theme": "light", "effort": "high" }));
}
