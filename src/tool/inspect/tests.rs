#![expect(clippy::disallowed_methods, reason = "tests prepare files")]

use super::*;

use crate::{
    authority::{Confinement, Narrowing, Source, Subject},
    host::Host,
    tool::stage::Stage,
};

fn told() -> Told {
    let subject = Subject::new([(
        Source::Flag("--no-bash".to_owned()),
        Narrowing::Drop(vec![Atom::ProcessExec]),
    )]);
    Told {
        report: Report::new(&subject, Confinement::None),
        confinement: Confinement::None,
        tools: vec![("read".to_owned(), "Reads.".to_owned())],
        context: vec!["system prompt: 5 bytes".to_owned()],
    }
}

#[test]
fn what_is_told_is_the_report_and_the_tools_on_offer() {
    let stage = Stage::new();
    let ask = |what: &str| json!({ "what": what });
    assert_eq!(stage.refused(&Inspect, &ask("tools")), "this run was not told about itself");
    stage.context.state.told.set(told()).unwrap();
    let report = told().report;
    let authority = stage.ok(&Inspect, &ask("authority"));
    assert_eq!(authority, report.text() + &report.remarks().join("\n"));
    assert!(authority.contains("process/exec") && authority.contains("flag --no-bash"));
    assert_eq!(stage.ok(&Inspect, &ask("tools")), "read: Reads.");
    let context = stage.ok(&Inspect, &ask("context"));
    assert!(context.starts_with("workspace: /") && context.ends_with("system prompt: 5 bytes"));
    let sandbox = stage.ok(&Inspect, &ask("sandbox"));
    assert!(sandbox.starts_with("confinement: none\nno plan is told"), "{sandbox}");
    let wrong = stage.refused(&Inspect, &ask("keys"));
    assert!(wrong.starts_with("`what` is `keys`; it can be `tools`"), "{wrong}");
}

#[test]
fn a_jails_plan_is_shown() {
    let marker = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(marker.path(), r#"{"version":1,"network":false,"hiddenPaths":2}"#).unwrap();
    let stage = Stage::with_host(Host::with_marker(marker.path()));
    let confinement = Confinement::KliSandbox;
    stage.context.state.told.set(Told { confinement, ..told() }).unwrap();
    let sandbox = stage.ok(&Inspect, &json!({ "what": "sandbox" }));
    assert!(sandbox.contains("\"hiddenPaths\": 2") && sandbox.contains("\"network\": false"));
    // The same text where nothing confines the process is somebody else's.
    let stage = Stage::with_host(Host::with_marker(marker.path()));
    stage.context.state.told.set(told()).unwrap();
    let forged = stage.ok(&Inspect, &json!({ "what": "sandbox" }));
    assert!(forged.starts_with("confinement: none\nno plan is told"), "{forged}");
}
