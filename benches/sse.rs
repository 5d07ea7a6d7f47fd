//! How fast a model's answer is read, and what opening a model costs: `cargo bench --bench sse`.
//!
//! Throughput is printed beside that of a plain copy of the same bytes in the same run, since only
//! the ratio means something on another machine. One thread; the best of several rounds.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use kli::model::{
    catalogue::{Kind, Options, Secret, open},
    sse::Parser,
};

const TOTAL: usize = 64 * 1024 * 1024;

/// What one read of a socket brings, about.
const CHUNK: usize = 16 * 1024;

fn main() {
    for (name, length) in [("4 KiB", 4096), ("256 B", 256), ("20 B", 20)] {
        let stream = deltas(length);
        let bytes = stream.as_bytes();
        let copied = best(|| {
            let mut out = Vec::with_capacity(CHUNK);
            for chunk in bytes.chunks(CHUNK) {
                out.clear();
                out.extend_from_slice(chunk);
                black_box(&out);
            }
        });
        let read = best(|| {
            let mut parser = Parser::new();
            let mut events = Vec::new();
            for chunk in bytes.chunks(CHUNK) {
                events.clear();
                if parser.feed(black_box(chunk), &mut events).is_err() {
                    return;
                }
                black_box(&events);
            }
        });
        println!(
            "sse, deltas of {name}: {:.2} GB/s ({:.1}x the time of a copy)",
            rate(bytes.len(), read),
            read.as_secs_f64() / copied.as_secs_f64()
        );
    }
    for (kind, url) in [
        (Kind::Anthropic, "http://127.0.0.1:1"),
        (Kind::OpenAiChat, "http://127.0.0.1:1/v1"),
        (Kind::OpenAiChat, "unix:/run/model.sock"),
        (Kind::Anthropic, "http://model.example"),
        (Kind::Anthropic, "https://model.example"),
    ] {
        let mut options = Options::new(kind, "mine", "m");
        options.base_url = Some(url.to_owned());
        options.key = Some(Secret::new("not-a-key"));
        let started = Instant::now();
        let opened = open(&options).map(drop);
        let first = started.elapsed();
        let again = best(|| drop(black_box(open(&options))));
        println!("open {url}: first {first:?}, best {again:?}, {opened:?}");
    }
}

fn deltas(length: usize) -> String {
    let text = "The quick brown fox jumps over the lazy dog, naïvely. ".repeat(length / 50 + 1);
    let text: String = text.chars().take(length).collect();
    let event = format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
    );
    event.repeat(TOTAL / event.len())
}

fn best(mut run: impl FnMut()) -> Duration {
    let times = (0..7).map(|_| {
        let started = Instant::now();
        run();
        started.elapsed()
    });
    times.min().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}
