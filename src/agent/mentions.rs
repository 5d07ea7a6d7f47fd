//! Mentions: `@path` in a prompt. Pure: what of it names something is for the caller to say.

/// The most mentions of one prompt that are looked at.
pub(super) const MOST: usize = 32;

/// What may stand right before the `@` of a mention.
const OPENERS: &[char] = &['(', '[', '{', '"', '\'', '`', ',', ';', ':', '<', '>', '='];

/// What ends a sentence rather than a name, when nothing has the name with it.
const CLOSERS: &[char] =
    &['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\'', '`', '>', '…', '。', '、'];

/// Returns what a prompt may mention, in order, each once: for every mention the spellings that it
/// can stand for, the longest first. `@"a b"` names a path with blanks. An `@` within a word (an
/// address) is none.
pub(super) fn mentions(prompt: &str) -> Vec<Vec<&str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut before: Option<char> = None;
    let mut letters = prompt.char_indices();
    while let Some((at, c)) = letters.next() {
        let opens = begins_mention(before);
        before = Some(c);
        if c != '@' || !opens {
            continue;
        }
        let rest = prompt.get(at + 1..).unwrap_or_default();
        let spellings = spellings(rest);
        let Some(longest) = spellings.first() else { continue };
        // What stands within a mention is no further one.
        let quotes = if rest.starts_with('"') { 2 } else { 0 };
        for _ in 0..longest.chars().count() + quotes {
            before = letters.next().map(|(_, c)| c);
        }
        if !found.contains(&spellings) {
            found.push(spellings);
        }
        if found.len() == MOST {
            break;
        }
    }
    found
}

/// Says whether an `@` behind this character begins a mention, and is none within a word.
pub fn begins_mention(before: Option<char>) -> bool {
    before.is_none_or(|c| c.is_whitespace() || OPENERS.contains(&c))
}

/// Returns how a prompt mentions a path, quoted where it has to be; `None` for one that no mention can
/// name.
pub fn mention_of(path: &str) -> Option<String> {
    let ways = [format!("@{path}"), format!("@\"{path}\"")];
    ways.into_iter().find(|way| {
        let found = mentions(way);
        found.len() == 1 && found.iter().flatten().next() == Some(&path)
    })
}

fn spellings(rest: &str) -> Vec<&str> {
    if let Some(quoted) = rest.strip_prefix('"') {
        let end = quoted.find(['"', '\n']);
        return match end.and_then(|end| quoted.split_at_checked(end)) {
            Some((name, after)) if after.starts_with('"') && !name.trim().is_empty() => vec![name],
            _ => Vec::new(),
        };
    }
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let mut word = rest.get(..end).unwrap_or_default();
    let mut spellings = Vec::new();
    while !word.is_empty() {
        // Dots alone would name a directory that nobody meant.
        if !word.chars().all(|c| CLOSERS.contains(&c)) {
            spellings.push(word);
        }
        let Some(shorter) = word.strip_suffix(CLOSERS) else { break };
        word = shorter;
    }
    spellings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shortest(prompt: &str) -> Vec<&str> {
        mentions(prompt).iter().map(|m| *m.last().unwrap()).collect()
    }

    #[test]
    fn mentions_are_found_where_a_word_begins() {
        assert_eq!(shortest("look at @src/a.rs, and (@b)."), ["src/a.rs", "b"]);
        assert_eq!(shortest("@a @\"with blank.txt\" @a"), ["a", "with blank.txt"]);
        assert_eq!(shortest("\"@c\" =@d @漢字.txt。"), ["c", "d", "漢字.txt"]);
        assert_eq!(mentions("@a.b.")[0], ["a.b.", "a.b"], "the longest name comes first");
        for none in ["me@example.org", "a@b", "@", "@ x", "@\"open", "@\"\"", "@...", "@\"a\nb\""] {
            assert_eq!(shortest(none), Vec::<&str>::new(), "{none}");
        }
        assert_eq!(shortest("@scope/pkg and @property"), ["scope/pkg", "property"]);
    }

    #[test]
    fn a_path_is_quoted_where_it_has_to_be() {
        assert_eq!(mention_of("src/a.rs").as_deref(), Some("@src/a.rs"));
        assert_eq!(mention_of("a b").as_deref(), Some("@\"a b\""));
        assert_eq!(mention_of("...").as_deref(), Some("@\"...\""));
        for none in ["", " ", "a\"b c", "\"a", "a\nb"] {
            assert_eq!(mention_of(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn a_path_that_is_mentioned_is_found_again(path in "[a-z@ \".,é/]{1,12}") {
            if let Some(way) = mention_of(&path) {
                let prompt = format!("see {way} now");
                prop_assert!(mentions(&prompt).iter().flatten().any(|it| *it == path), "{prompt}");
            } else {
                prop_assert!(path.contains('"') || path.trim().is_empty(), "{path:?}");
            }
        }

        #[test]
        fn every_spelling_stands_in_the_prompt_behind_its_sign(prompt in "[@a \".é\n/,]{0,40}") {
            let found = mentions(&prompt);
            prop_assert!(found.len() <= MOST);
            for spelling in found.iter().flatten() {
                let (plain, quoted) = (format!("@{spelling}"), format!("@\"{spelling}\""));
                prop_assert!(prompt.contains(&plain) || prompt.contains(&quoted));
            }
        }
    }
}
