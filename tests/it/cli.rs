//! What the command line prints: the whole of its help, and its refusals.

use bailey_tests::{binaries, run};

fn bailey(words: &[&str]) -> bailey_tests::Output {
    let mut command = std::process::Command::new(binaries().join("bailey"));
    command.env_clear().env("HOME", "/nonexistent").args(words);
    run(&mut command)
}

/// The verbs that the help lists, the device's own apart.
fn verbs() -> Vec<String> {
    let help = bailey(&["--help"]).ok().stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    listed
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[test]
fn the_help_is_the_reference() {
    let mut all = String::new();
    let verbs = verbs();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in std::iter::once("").chain(verbs.iter().map(String::as_str)) {
        let words: Vec<&str> = verb
            .split(' ')
            .filter(|word| !word.is_empty())
            .chain(["--help"])
            .collect();
        let output = bailey(&words).ok();
        all += &format!("## bailey {verb}\n\n{}\n", output.stdout);
    }
    for (group, verb) in [
        ("account", "add"),
        ("device", "add"),
        ("device", "join"),
        ("device", "list"),
        ("device", "forget"),
        ("device", "recovery"),
        ("device", "recover"),
        ("store", "check"),
    ] {
        all += &format!(
            "## bailey {group} {verb}\n\n{}\n",
            bailey(&[group, verb, "--help"]).ok().stdout
        );
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_usage_error_is_2_and_names_the_place() {
    let mut all = String::new();
    for words in [
        &["run"][..],
        &["run", "--reach", "a..b", "--", "true"],
        &["run", "--reach", "internet,nothing", "--", "true"],
        &["run", "--grant", "/no/such/folder", "--", "true"],
        &["run", "--env", "=x", "--", "true"],
        &["run", "--env", "NOT_SET_ANYWHERE", "--", "true"],
        &["run", "--here=rx", "--", "true"],
        &["flows", "yard", "--since", "1y"],
        &["frobnicate"],
    ] {
        let output = bailey(words);
        assert_eq!(output.code, Some(2), "{words:?}: {output}");
        all += &format!("$ bailey {}\n{}\n", words.join(" "), output.stderr);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn without_a_place_for_its_state_it_says_which_variable() {
    let mut command = std::process::Command::new(binaries().join("bailey"));
    command.env_clear().arg("ps");
    let output = run(&mut command);
    assert_eq!(output.code, Some(125));
    assert!(output.stderr.contains("XDG_STATE_HOME"), "{output}");
}

#[test]
fn the_helper_refuses_everything_but_its_version() {
    let helper = |words: &[&str]| {
        let mut command = std::process::Command::new(binaries().join("bailey-helper"));
        run(command.args(words))
    };
    assert_eq!(helper(&["--version"]).code, Some(0));
    assert_eq!(helper(&[]).code, Some(2));
    assert_eq!(helper(&["install"]).code, Some(2));
}
