//! Dangers that no file may cause.

use super::*;

#[test]
fn secrets_are_in_no_text() {
    let secret = Secret::new("hunter2");
    assert_eq!(format!("{secret} {secret:?}"), "*** ***");
    assert_eq!(secret.expose(), "hunter2");

    let text = "[servers.a]\ncommand = 'a'\nargs = ['--key=hunter2']\nenv = { K = 'hunter2' }\n\
                [servers.b]\nurl = 'https://b.example/hunter2?k=hunter2'\nheaders = { K = 'hunter2' }";
    let config = toml_file(text).good("seawall.toml");
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}

#[test]
fn values_that_are_wrong_are_not_repeated() {
    let kit = toml_file(
        "[servers.a]\nurl = '${URL}'\nheaders = { A = '${KEY}', B = 'x ${hunter2!} ${hunter2' }\n\
         [servers.b]\ncommand = 'a'\nargs = ['${NUL}', '${A:-hunter2${B}']\nenv = { 'K=' = 'hunter2' }",
    )
    .var("URL", "https://me:hunter2@x.example")
    .var("KEY", "hunter2\n")
    .var("NUL", "hunter2\0");

    let problems = kit.problems("seawall.toml");

    assert_eq!(problems.lines().count(), 7, "{problems}");
    assert!(!problems.contains("hunter2"), "{problems}");
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_write_is_refused() {
    let text = "[servers.a]\ncommand = '${UNSET}'\n[servers.b]\ncommand = ''";
    for (mode, is_refused) in
        [(0o600, false), (0o644, false), (0o640, false), (0o620, true), (0o602, true)]
    {
        let kit = toml_file(text);
        let path = kit.path("seawall.toml");
        set_mode(&path, mode);

        let problems = kit.problems("seawall.toml");

        let refusal = format!(
            "seawall.toml: others can change the commands this file starts; chmod go-w {}",
            path.display().to_string().replace(&format!("{}/", kit.text_of_folder()), "")
        );
        assert_eq!(problems.contains(&refusal), is_refused, "{mode:o}: {problems}");
        assert!(problems.contains("UNSET"), "the other problems are told too");
    }
}

#[test]
fn a_file_that_cannot_be_a_config_is_refused() {
    let kit = Kit::new()
        .file("config.yaml", "servers: {}")
        .file("big.toml", &"#".repeat(1024 * 1024 + 1));
    fs::write(kit.path("latin.toml"), b"# \xe4").unwrap();
    set_mode(&kit.path("latin.toml"), 0o600);

    assert_eq!(
        kit.problems("none.toml"),
        "none.toml: cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(kit.problems("big.toml"), "big.toml: is longer than 1 MiB");
    assert_eq!(kit.problems("latin.toml"), "latin.toml: is not UTF-8 text; save it as UTF-8");
    assert_eq!(
        kit.problems("config.yaml"),
        "config.yaml: is YAML, but not agentgateway's: it has no binds; Seawall's own file is TOML or JSON"
    );
}

#[test]
fn a_file_of_any_name_is_known_by_its_first_character() {
    let kit = Kit::new()
        .file("one", "// json\n{\"mcpServers\": {\"a\": {\"command\": \"a\"}}}")
        .file("two.conf", "\u{feff}[servers.a]\ncommand = 'a'")
        .file("three.JSON", "\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"a\"}}}");

    for name in ["one", "two.conf", "three.JSON"] {
        assert_eq!(shown(&only(kit.good(name))), "stdio a ", "{name}");
    }
}

/// Files that are almost right, in thousands of ways; the same files on every run.
#[test]
fn no_file_makes_the_reader_panic() {
    let samples = [
        ("a.json", include_str!("samples/vscode.json")),
        ("a.toml", include_str!("samples/own.toml")),
        ("a.toml", include_str!("samples/codex.toml")),
    ];
    let env = |name: &str| (name != "UNSET").then(|| "https://x.example/ä".to_owned());
    let mut seed: u64 = 7;
    let mut next = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound
    };
    for (name, sample) in samples {
        for _ in 0..4_000 {
            let mut chars: Vec<char> = sample.chars().collect();
            for _ in 0..=next(3) {
                let (at, from) = (next(chars.len()), next(chars.len()));
                match next(4) {
                    0 => drop(chars.drain(at..(at + next(20)).min(chars.len()))),
                    1 => chars.insert(
                        at,
                        ['"', '{', '}', '[', ',', '/', '*', '\\', 'ä', '\n', '$', '\0'][next(12)],
                    ),
                    2 => chars.swap(at, from),
                    _ => chars[at] = chars[from],
                }
            }
            let text: String = chars.into_iter().collect();
            let mut problems = Problems::default();
            let config = read_text(Path::new(name), &text, &env, true, &mut problems);
            let lines = text.lines().count().max(1) + 1;
            assert!(
                problems
                    .iter()
                    .all(|problem| problem.line.is_none_or(|line| (1..=lines).contains(&line)))
            );
            assert!(config.is_some() || problems.count() > 0);
        }
    }
}

#[test]
fn one_program_with_other_variables_is_another_server() {
    let text = "[servers.a]\ncommand = \"x\"\nenv = { MODE = \"one\" }\n[servers.b]\ncommand = \"x\"\nenv = { MODE = \"two\" }\n\
                [servers.c]\nurl = \"http://127.0.0.1:1/mcp\"\nheaders = { Authorization = \"Bearer one\" }\n";
    let remembered = |text: &str| {
        let config = Kit::new().file("seawall.toml", text).good("seawall.toml");
        config.servers.iter().map(|server| server.transport.remembered_as("s")).collect::<Vec<_>>()
    };
    let (first, again) = (remembered(text), remembered(&text.replace("Bearer one", "Bearer two")));
    assert_eq!(first, again, "a token comes and goes");
    assert_ne!(first[0], first[1]);
    let config = Kit::new().file("seawall.toml", text).good("seawall.toml");
    let named = |server: usize, name: &str| config.servers[server].transport.remembered_as(name);
    assert_eq!(
        named(0, "a"),
        named(0, "b"),
        "the same program is the same server, whatever it is called"
    );
    assert_ne!(named(2, "c"), named(2, "d"), "one address may be several");
}
