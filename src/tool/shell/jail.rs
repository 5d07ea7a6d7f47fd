//! The line that explains a failure by the jail: which rule, and which option changes it.

use serde_json::Value;

/// Returns the line about the jail that explains a failure, when there is a jail and one shows.
pub(super) fn sandbox_line(jail: Option<&Value>, texts: &[&str]) -> Option<String> {
    let jail = jail?;
    let shows = |signs: &[&str]| texts.iter().any(|text| signs.iter().any(|s| text.contains(s)));
    if shows(&["Read-only file system", "EROFS"]) {
        return Some(
            "[sandbox: outside the workspace and `writablePaths` everything is read-only for the \
             whole run, and so are hidden paths and git's hooks and config inside; the option \
             `sandbox.writablePaths` opens a directory, `sandbox.git` the git directory]"
                .to_owned(),
        );
    }
    let hidden = jail.get("hiddenPaths").and_then(Value::as_u64).unwrap_or(0);
    if hidden > 0 && shows(&["Device or resource busy", "EBUSY"]) {
        return Some(
            "[sandbox: a hidden path reads as empty and can be neither removed nor moved for the \
             whole run; the option `sandbox.denyRead` lists what is hidden]"
                .to_owned(),
        );
    }
    let network = jail.get("network").and_then(Value::as_bool);
    let signs = [
        "Network is unreachable",
        "ENETUNREACH",
        "Temporary failure in name resolution",
        "Could not resolve host",
        "Name or service not known",
        "EAI_AGAIN",
    ];
    (network == Some(false) && shows(&signs)).then(|| {
        "[sandbox: there is no network in this run; the option `sandbox.network` gives it]"
            .to_owned()
    })
}
