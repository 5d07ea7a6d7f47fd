use super::*;

use crate::tool::stage::Stage;

fn page(stage: &Stage, arguments: &Value) -> Outcome {
    stage.call(&ReadResult, arguments)
}

/// Keeps a text and returns its handle.
fn keep(stage: &Stage, text: &[u8]) -> String {
    let mut recorder = Recorder::new(&stage.context.state.results, 0);
    recorder.push(text);
    recorder.handle().unwrap().to_owned()
}

#[test]
fn what_fits_is_not_kept_and_what_does_not_is_kept_whole() {
    let stage = Stage::new();
    let results = &stage.context.state.results;
    let fits = "x".repeat(cut::BUDGET);
    assert_eq!(results.cut(&fits, "-"), fits);
    assert_eq!(lock(&results.shelf).kept.len(), 0);
    let long = (1..=20_000).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
    let shown = results.cut(&long, "narrow it");
    assert!(shown.len() < cut::BUDGET + 300);
    let handle = shown.split("handle `").nth(1).unwrap().split('`').next().unwrap();
    assert!(shown.contains("bytes are missing here: read_result with handle"), "{shown}");
    let middle = page(&stage, &json!({"handle": handle, "start": 10_000, "lines": 2}));
    assert_eq!(
        middle.text,
        "10000|line 10000\n10001|line 10001\n[2 lines, up to line 10001 of 20000; start=10002 \
         goes on]"
    );
    assert_eq!(middle.record["totalLines"], 20_000);
}

#[test]
fn pages_follow_each_other_until_the_end() {
    let stage = Stage::new();
    let handle = keep(&stage, b"a\nb\n\nd");
    let all = page(&stage, &json!({ "handle": handle }));
    assert_eq!(all.text, "1|a\n2|b\n3|\n4|d\n[4 lines, up to line 4 of 4]");
    let first = page(&stage, &json!({"handle": format!("`{handle}` "), "lines": "2"}));
    assert_eq!(first.text, "1|a\n2|b\n[2 lines, up to line 2 of 4; start=3 goes on]");
    let beyond = page(&stage, &json!({"handle": handle, "start": 9}));
    assert_eq!(beyond.text, "[there is no line 9; there are 4]");
}

#[test]
fn a_pattern_filters_lines_and_keeps_their_numbers() {
    let stage = Stage::new();
    let text = (1..=5000).map(|n| format!("{n} is {}\n", n % 7)).collect::<Vec<_>>().concat();
    let handle = keep(&stage, text.as_bytes());
    let found = page(&stage, &json!({"handle": handle, "pattern": "^4[0-9]{3} is 3$", "lines": 2}));
    assert!(found.text.starts_with("4000|4000 is 3\n4007|4007 is 3\n"), "{}", found.text);
    assert!(
        found.text.ends_with("[2 lines that match, up to line 4007 of 5000; start=4008 goes on]")
    );
    let none = page(&stage, &json!({"handle": handle, "pattern": "é"}));
    assert_eq!(none.text, "[no line from 1 on matches; there are 5000]");
    let wrong = stage.refused(&ReadResult, &json!({"handle": handle, "pattern": "a("}));
    assert!(wrong.contains("`pattern` is no regular expression"), "{wrong}");
}

#[test]
fn bytes_that_are_no_text_and_long_lines_are_shown_within_bounds() {
    let stage = Stage::new();
    let mut text = b"\xff\xfe\n\x1b\xe2\x9c\x93\n".to_vec();
    text.extend(vec![b'x'; 3 << 20]);
    text.extend(b"\nend");
    let handle = keep(&stage, &text);
    let shown = page(&stage, &json!({ "handle": handle })).text;
    assert!(shown.starts_with("1|\u{fffd}\u{fffd}\n2|\u{1b}✓\n3|xxx"), "{}", &shown[..40]);
    assert!(shown.contains("[… 3143728 bytes more in this line]\n4|end\n"), "{shown}");
    let many = keep(&stage, "y\n".repeat(100_000).as_bytes());
    let shown = page(&stage, &json!({"handle": many, "lines": 1_000_000})).text;
    assert!(shown.len() <= cut::BUDGET + 200 && shown.contains("of 100000; start="));
}

#[test]
fn a_handle_that_is_gone_or_of_another_run_says_so() {
    let stage = Stage::new();
    let handle = keep(&stage, b"text\n");
    let other = Stage::new();
    let foreign = page(&other, &json!({ "handle": handle }));
    assert!(foreign.is_error);
    assert!(foreign.text.contains("any more: results are kept while the run"), "{}", foreign.text);
    assert!(page(&stage, &json!({ "handle": handle })).text.starts_with("1|text\n"), "control");
    // The oldest go first.
    for _ in 0..MOST {
        keep(&stage, b"x");
    }
    assert!(page(&stage, &json!({ "handle": handle })).is_error);
}

#[test]
fn one_result_and_the_whole_run_are_bounded() {
    let stage = Stage::new();
    let results = &stage.context.state.results;
    let piece = vec![b'x'; 4 << 20];
    let mut handles = Vec::new();
    for _ in 0..10 {
        let mut recorder = Recorder::new(results, 0);
        for _ in 0..17 {
            recorder.push(&piece);
        }
        let told = recorder.repair("-");
        assert!(told.contains("only the first 67108864 of 71303168 bytes were kept"), "{told}");
        handles.push(recorder.handle().unwrap().to_owned());
    }
    let taken: u64 =
        lock(&results.shelf).kept.iter().map(|(_, kept)| lock(kept).spill.length()).sum();
    assert!(taken <= RUN_LIMIT, "{taken}");
    assert!(page(&stage, &json!({ "handle": handles[0] })).is_error, "the oldest went");
    let last = page(&stage, &json!({ "handle": handles[9], "pattern": "nothing" }));
    assert!(last.text.contains("only the first 67108864 of 71303168"), "{}", last.text);
}

#[test]
fn a_result_that_cannot_be_kept_is_cut_all_the_same_and_says_so() {
    // A place where no file can be made comes first; the next one is taken.
    let results = Arc::new(Results::in_places(vec!["/proc/no/such".into()]));
    let text = "x".repeat(cut::BUDGET + 1);
    assert!(results.cut(&text, "narrow it").contains("read_result with handle"), "control");
    let mut recorder = Recorder::new(&results, 0);
    recorder.push(b"a");
    if let Some(Ok((_, kept))) = &recorder.opened {
        lock(kept).fault = Some("no space left on device".to_owned());
    }
    recorder.push(b"bcd");
    let told = recorder.repair("-");
    assert!(told.contains("only the first 1 of 4 bytes were kept; keeping more failed: no space"));
    let refused = Recorder { opened: Some(Err("nowhere".to_owned())), ..recorder };
    assert_eq!(refused.repair("narrow it"), "narrow it; the whole could not be kept: nowhere");
}
