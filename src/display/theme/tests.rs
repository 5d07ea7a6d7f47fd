use super::*;

#[test]
fn a_look_is_read_and_written() {
    for (text, written) in [
        ("bold red", "bold red"),
        ("red BOLD", "bold red"),
        ("208", "208"),
        ("#FF8800 on black", "#ff8800 on black"),
        ("on 236 underline", "underline on 236"),
        ("plain", "plain"),
        ("bright-black", "bright-black"),
    ] {
        let look: Look = text.parse().unwrap();
        assert_eq!(look.to_string(), written);
        assert_eq!(written.parse::<Look>(), Ok(look));
    }
    for (text, part) in [
        ("redd", "`redd` is neither a colour nor an attribute, did you mean `red`?"),
        ("256", "`256` is neither"),
        ("#12345", "`#12345` is neither"),
        ("#gggggg", "is neither"),
        ("#+12345", "is neither"),
        ("red blue", "two colours for the letters"),
        ("on", "no colour after `on`"),
        ("on red on blue", "two colours behind"),
        ("", "the look is empty"),
        ("red on red", "cannot be seen"),
        ("#ff0001 on #ff0000", "cannot be seen"),
    ] {
        let error = text.parse::<Look>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_colour_becomes_the_nearest_that_the_terminal_has() {
    for (color, depth, at) in [
        (Color::Rgb(255, 0, 1), Depth::True, Color::Rgb(255, 0, 1)),
        (Color::Rgb(255, 0, 1), Depth::Indexed, Color::Indexed(196)),
        (Color::Rgb(255, 0, 1), Depth::Basic, Color::Indexed(9)),
        (Color::Rgb(0x80, 0x80, 0x80), Depth::Indexed, Color::Indexed(244)),
        (Color::Indexed(208), Depth::Indexed, Color::Indexed(208)),
        (Color::Indexed(16), Depth::Basic, Color::Indexed(0)),
        // The palette is the person's own.
        (Color::Indexed(3), Depth::Basic, Color::Indexed(3)),
        (Color::Indexed(3), Depth::True, Color::Indexed(3)),
    ] {
        assert_eq!(color.at(depth), at, "{color:?} {depth:?}");
    }
    assert_eq!(Depth::of(Some("truecolor"), "xterm"), Depth::True);
    assert_eq!(Depth::of(None, "xterm-direct"), Depth::True);
    assert_eq!(Depth::of(None, "xterm-256color"), Depth::Indexed);
    assert_eq!(Depth::of(Some(""), "linux"), Depth::Basic);
    assert_eq!(Depth::of(None, "vt220"), Depth::Basic);
}

/// The contrast of two colours, from 1 to 21 (WCAG 2.1, "contrast ratio").
fn contrast(one: (u8, u8, u8), two: (u8, u8, u8)) -> f64 {
    let part = |c: u8| {
        let c = f64::from(c) / 255.0;
        if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    let light = |(r, g, b)| 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b) + 0.05;
    let (one, two) = (light(one), light(two));
    if one > two { one / two } else { two / one }
}

#[test]
fn kli_s_own_themes_can_be_read_on_their_ground_at_every_depth() {
    assert!(contrast((0, 0, 0), (255, 255, 255)) > 20.9, "control");
    for (name, grounds) in [
        ("dark", [(0, 0, 0), (0x1e, 0x1e, 0x1e), (0x2e, 0x34, 0x40)]),
        ("light", [(255, 255, 255), (0xfd, 0xf6, 0xe3), (0xee, 0xee, 0xee)]),
    ] {
        let theme = Theme::built_in(name).unwrap();
        for (role, role_name, _) in ROLES {
            let look = theme.look(role).unwrap_or_else(|| panic!("{name} has no {role_name}"));
            let color = look.foreground.unwrap();
            for depth in [Depth::True, Depth::Indexed] {
                for ground in grounds {
                    let found = contrast(color.at(depth).rgb(), ground);
                    assert!(found >= 4.5, "{name} {role_name} on {ground:?}: {found:.2}");
                }
            }
        }
    }
    assert!(Theme::built_in("auto").unwrap().look(Role::Error).is_none());
    assert!(Theme::built_in("none").unwrap().is_colorless());
    assert!(Theme::built_in("sepia").is_none() && !is_built_in("sepia"));
}

#[test]
fn every_role_has_one_name() {
    for (role, name, _) in ROLES {
        assert_eq!(Role::named(name), Some(role));
        assert_eq!(role.name(), name);
    }
    assert_eq!(Role::named("eror"), None);
    assert!(markdown().contains("| `removed` | lines that were taken away |"));
}
