//! `SYSTEM.md` and `APPEND_SYSTEM.md`, and how large what comes before the first prompt is.

use super::*;

const OWN: &str = "You are kli";

fn prompt_of(env: &Env, model: &FakeModel, flags: &[&str]) -> (String, Ran) {
    let ran = env.kli(&[&["-p", "go"], flags].concat());
    ran.exits(0);
    (system(&model.bodies().pop().unwrap()), ran)
}

#[test]
fn the_nearest_system_prompt_counts_and_all_that_extend_it() {
    let model = FakeModel::strict((0..4).map(|_| says("a")).collect());
    let baked = Env::new();
    let baked_directory = baked.home().join("baked");
    put(&baked_directory.join("settings.json"), "{}");
    put(&baked_directory.join("SYSTEM.md"), "baked system\n");
    put(&baked_directory.join("APPEND_SYSTEM.md"), "baked addition\n");
    let env = baked.at(&model.base_url()).var("KLI_BAKED", baked_directory.to_str().unwrap());
    let (prompt, _) = prompt_of(&env, &model, &[]);
    assert_eq!(prompt, "baked system\n\nbaked addition");
    let own = env.home().join(".config/kli");
    put(&own.join("SYSTEM.md"), "own system\n");
    put(&own.join("APPEND_SYSTEM.md"), "own addition\n");
    let (prompt, _) = prompt_of(&env, &model, &[]);
    assert_eq!(prompt, "own system\n\nbaked addition\n\nown addition");
    put(&env.work().join("s.md"), "flag system");
    put(&env.work().join("a.md"), "flag addition");
    let flags = ["--system-prompt-file", "s.md", "--append-system-prompt-file", "a.md"];
    let (prompt, _) = prompt_of(&env, &model, &flags);
    assert_eq!(prompt, "flag system\n\nbaked addition\n\nown addition\n\nflag addition");
    put(&own.join("SYSTEM.md"), b"caf\xe9");
    env.kli(&["-p", "go"]).exits(2).says("SYSTEM.md` is not UTF-8");
    put(&own.join("SYSTEM.md"), " \n");
    fs::remove_file(baked_directory.join("SYSTEM.md")).unwrap();
    let (prompt, _) = prompt_of(&env, &model, &[]);
    assert!(prompt.starts_with(OWN), "an empty one replaces nothing");
}

#[test]
fn a_projects_system_prompt_counts_only_while_the_project_is_trusted_as_it_is() {
    let model = FakeModel::strict((0..6).map(|_| says("a")).collect());
    let env = Env::new().at(&model.base_url());
    let file = env.work().join(".kli/SYSTEM.md");
    put(&file, "the project's own system\n");
    put(&env.work().join(".kli/APPEND_SYSTEM.md"), "the project's addition\n");
    let (prompt, ran) = prompt_of(&env, &model, &[]);
    ran.says("/.kli/SYSTEM.md`").says("are ignored until you trust the project (`kli trust`)");
    assert!(prompt.starts_with(OWN) && !prompt.contains("the project's"), "{prompt}");
    let (prompt, ran) = prompt_of(&env, &model, &["--trust-project"]);
    assert_eq!(prompt, "the project's own system\n\nthe project's addition");
    assert!(!ran.err.contains("ignored"), "{ran:?}");
    let ran = env.kli(&["trust"]);
    ran.exits(0);
    assert!(ran.out.contains("file .kli/SYSTEM.md  sha256:"), "{ran:?}");
    assert!(ran.out.contains("file .kli/APPEND_SYSTEM.md  sha256:"));
    let (prompt, _) = prompt_of(&env, &model, &[]);
    assert_eq!(prompt, "the project's own system\n\nthe project's addition");
    // Any change asks again.
    put(&file, "something else\n");
    let (prompt, ran) = prompt_of(&env, &model, &[]);
    ran.says("ignored until you trust");
    assert!(prompt.starts_with(OWN), "{prompt}");
    put(&file, "the project's own system\n");
    let (prompt, _) = prompt_of(&env, &model, &[]);
    assert!(!prompt.starts_with(OWN), "control");
    fs::remove_file(&file).unwrap();
    let (prompt, _) = prompt_of(&env, &model, &[]);
    assert!(prompt.starts_with(OWN) && !prompt.contains("addition"), "one less is a change too");
}

#[test]
fn what_comes_before_the_first_prompt_is_small_and_stays_the_same() {
    let model = FakeModel::strict(vec![
        call("c1", "read", &json!({"path": "a"})),
        call("c2", "bash", &json!({"command": "cd sub"})),
        says("done"),
    ]);
    let env = Env::new().at(&model.base_url());
    put(&env.work().join("a"), "a\n");
    put(&env.work().join("sub/AGENTS.md"), "sub words\n");
    env.kli(&["-p", "go"]).exits(0);
    let bodies = model.bodies();
    assert_eq!(bodies.len(), 3);
    let (prompt, tools) = (system(&bodies[0]), bodies[0]["tools"].to_string());
    let bytes = prompt.len() + tools.len();
    println!("system prompt {} + tools {} = {bytes} bytes", prompt.len(), tools.len());
    assert!(bytes < 6000, "{bytes} bytes: {prompt}\n{tools}");
    assert!(tools.contains("\"task\"") && prompt.contains("Working directory"), "control");
    for body in &bodies {
        assert_eq!(system(body), prompt);
        assert_eq!(body["tools"].to_string(), tools);
    }
}
