use super::{super::style::Link, *};

const ALL: &str = "\
# Title

A *soft* paragraph with `code`, **bold** and a [link](https://example.org/x) that wraps.
Second line.

- one
- two
  - nested item
- three

1. first
2. second

> quoted *text*
> goes on

| name | n |
|:-----|--:|
| a    | 1 |
| long | 22 |

```rust
fn main() {} // x
```

---

end \x1b[31mred\x1b[0m
";

fn texts(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| line.text().trim_end().to_owned()).collect()
}

fn at_once(text: &str, width: usize) -> Vec<Line> {
    let mut stream = Stream::default();
    stream.push(text);
    stream.finish(width)
}

#[test]
fn every_kind_of_block_has_its_rows() {
    let wanted = [
        "Title",
        "",
        "A soft paragraph with code, bold and a link (https://example.org/x) that wraps. Second line.",
        "",
        "• one",
        "• two",
        "  • nested item",
        "• three",
        "",
        "1. first",
        "2. second",
        "",
        "│ quoted text goes on",
        "",
        "name │  n",
        "─────┼───",
        "a    │  1",
        "long │ 22",
        "",
        "  fn main() {} // x",
        "",
        "────────────────────────────────────────",
        "",
        "end red",
    ];
    assert_eq!(texts(&at_once(ALL, 200)), wanted);
}

#[test]
fn narrow_rows_wrap_and_tables_become_lists() {
    for width in [1, 2, 3, 5, 8, 13, 20, 80] {
        for line in at_once(ALL, width) {
            assert!(line.width() <= width, "{:?} at {width}", line.text());
        }
    }
    let table = "| name | about |\n|---|---|\n| a | some words |\n";
    assert_eq!(texts(&at_once(table, 9)), ["name: a", "about:", "some", "words"]);
    assert_eq!(
        texts(&at_once(table, 14)),
        ["name │ about", "─────┼────────", "a    │ some", "     │ words"]
    );
}

#[test]
fn looks_are_not_the_only_thing_that_tells() {
    let rows = at_once("# T\n\n`x` **b** ~~s~~\n", 80);
    assert!(rows[0].spans[0].style.bold && rows[0].spans[0].style.underline);
    assert_eq!(rows[2].spans[0].style.foreground, Some(super::super::style::Color::CYAN));
    assert!(rows[2].spans[2].style.bold && rows[2].spans[4].style.strike);
}

#[test]
fn rows_come_as_soon_as_their_block_is_complete() {
    let mut stream = Stream::default();
    stream.push("One ");
    assert!(stream.ready(80).is_empty());
    assert_eq!(texts(&stream.tail(80)), ["One"]);
    stream.push("two.\n\n");
    assert!(stream.ready(80).is_empty());
    stream.push("Three");
    assert_eq!(texts(&stream.ready(80)), ["One two."]);
    assert_eq!(texts(&stream.tail(80)), ["", "Three"]);
    stream.push(" four.\n\n```sh\nls\n");
    assert_eq!(texts(&stream.ready(80)), ["", "Three four.", "", "  ls"]);
    stream.push("echo");
    assert!(stream.ready(80).is_empty());
    assert_eq!(texts(&stream.tail(80)), ["  echo"]);
    stream.push(" x\n```\nafter");
    assert_eq!(texts(&stream.ready(80)), ["  echo x"]);
    assert_eq!(texts(&stream.finish(80)), ["", "after"]);
    assert!(stream.finish(80).is_empty());
}

#[test]
fn a_list_with_blank_lines_stays_one_list() {
    let text = "1. a\n\n   more of a\n\n2. b\n\nend";
    let mut stream = Stream::default();
    let mut rows = Vec::new();
    for c in text.chars() {
        stream.push(c.encode_utf8(&mut [0; 4]));
        rows.extend(stream.ready(80));
    }
    rows.extend(stream.finish(80));
    assert_eq!(texts(&rows), ["1. a", "", "   more of a", "2. b", "", "end"]);
}

#[test]
fn a_paragraph_without_an_end_is_bounded() {
    let mut stream = Stream::default();
    let mut rows = 0;
    for _ in 0..4000 {
        stream.push("word and word ");
        rows += stream.ready(80).len();
    }
    assert!(rows > 300 && stream.buffer.len() <= LONGEST, "{rows} rows, {}", stream.buffer.len());
}

#[test]
fn a_reference_to_a_control_character_is_none() {
    let text = "a&#27;[2J&#x9b;2J&#7;b `c&#27;` [d&#27;]0;x](http://e/&#27;) &#x202e;f\n\n    code&#27;[2J\n";
    let rows = render(text, 80);
    let shown = texts(&rows).join("\n");
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    assert!(shown.starts_with('a') && shown.contains("\\u{202e}f"), "{shown:?}");
}

#[test]
fn containers_of_any_depth_cost_little() {
    let start = std::time::Instant::now();
    for text in [">".repeat(LONGEST), "- ".repeat(LONGEST / 2), "> - ".repeat(LONGEST / 4)] {
        let rows = texts(&render(&format!("{text}deep"), 80));
        assert!(rows.iter().any(|row| row.contains("deep")), "{rows:?}");
        assert!(rows.iter().all(|row| super::super::cells::width(row) <= 80));
    }
    // It was minutes; no machine needs ten seconds.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn a_table_longer_than_a_block_stays_one() {
    let rows: String = (0..2000)
        .map(|number| format!("| row {number} | {number} |\n"))
        .collect::<Vec<_>>()
        .concat();
    let text = format!("| name | count |\n|---|---:|\n{rows}");
    let mut stream = Stream::default();
    let mut rows = Vec::new();
    for piece in text.as_bytes().chunks(1000) {
        stream.push(std::str::from_utf8(piece).unwrap());
        rows.extend(stream.ready(80));
    }
    rows.extend(stream.finish(80));
    let rows = texts(&rows);
    for number in [0, 500, 1000, 1999] {
        let found = rows.iter().filter(|row| row.starts_with(&format!("row {number} "))).count();
        assert_eq!(found, 1, "{number}");
    }
    assert!(rows.iter().all(|row| !row.starts_with('|') && !row.is_empty()), "{rows:#?}");
}

#[test]
fn an_answer_that_comes_at_once_is_moved_once() {
    let code = format!("```rust\n{}```\n", "let a = 1;\n".repeat(1000));
    for (text, least) in [(code, 1000), ("```\nx\n```\n".repeat(500), 500)] {
        let mut stream = Stream::default();
        stream.push(&text);
        let mut rows = Vec::new();
        // However many blocks are taken, what is behind them stays where it is.
        for _ in 0..5 {
            assert!(stream.take(80, &mut rows));
            assert_eq!(stream.buffer.len(), text.len());
        }
        assert!(stream.done > 0, "control");
        rows.extend(stream.ready(80));
        assert!(rows.len() >= least && stream.buffer.is_empty(), "{}", rows.len());
    }
}

proptest::proptest! {
    /// However the text is split, the rows are the same, and none is taken back.
    #[test]
    fn any_chunking_gives_the_same_rows(
        size in 1_usize..40, width in proptest::sample::select(vec![20_usize, 80, 200]),
    ) {
        let mut stream = Stream::default();
        let mut rows = Vec::new();
        let chars: Vec<char> = ALL.chars().collect();
        for piece in chars.chunks(size) {
            stream.push(&piece.iter().collect::<String>());
            rows.extend(stream.ready(width));
            drop(stream.tail(width));
        }
        rows.extend(stream.finish(width));
        proptest::prop_assert_eq!(texts(&rows), texts(&at_once(ALL, width)));
    }
}

#[test]
fn links_lead_where_they_say_also_over_several_rows() {
    let text = "See [the docs](https://example.org/a/long/address/that/wraps) and <https://b.example/>, not \
                [x](javascript:alert(1)) or [y](https://c/\u{7}z).\n\n| [t](https://t.example) |\n|---|\n| a |";
    for width in [20, 80, 200] {
        let rows = at_once(text, width);
        let linked: Vec<(String, Option<Link>)> = rows
            .iter()
            .flat_map(|row| &row.spans)
            .filter(|span| span.link.is_some())
            .map(|span| (span.text.clone(), span.link.clone()))
            .collect();
        let of = |address: &str| -> String {
            let link = Link::new(address);
            linked.iter().filter(|(_, to)| *to == link).map(|(text, _)| text.as_str()).collect()
        };
        // The text and the address are seen, and both lead there; what stands around them does not.
        let long = "https://example.org/a/long/address/that/wraps";
        assert_eq!(of(long).replace(' ', ""), format!("thedocs{long}"), "{width}");
        assert_eq!(of("https://b.example/"), "https://b.example/", "{width}");
        assert_eq!(of("https://t.example").replace(' ', ""), "thttps://t.example", "{width}");
        // A control character is gone before anything is a link.
        assert!(of("https://c/z").contains("https://c/z"), "{width}: {linked:?}");
        let all: String = rows.iter().map(Line::text).collect();
        assert!(all.replace(' ', "").contains("x(javascript:alert(1))"), "{all}");
        assert!(!linked.iter().any(|(text, _)| text.contains("alert")));
    }
}
