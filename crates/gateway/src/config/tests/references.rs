//! The values of `${…}`.

use super::*;

/// The expanded argument; or the problem with the file; or the missing reference, which makes only
/// its server incomplete.
fn arg(kit: Kit, text: &str) -> Result<String, String> {
    let kit = kit.file("seawall.toml", &format!("[servers.it]\ncommand = 'a'\nargs = ['{text}']"));
    let folder = kit.text_of_folder();
    let plain = |text: String| {
        text.replace(&format!("{folder}/seawall.toml:3: servers.it.args[0]: "), "")
            .replace(&folder, "FOLDER")
    };
    match kit.load("seawall.toml").map(only) {
        Ok(Transport::Incomplete { lacking }) => {
            let [problem] = lacking.as_slice() else { panic!("{lacking:?}") };
            Err(format!("lacking: {}", plain(problem.to_string())))
        }
        Ok(transport) => Ok(shown(&transport).replace("stdio a ", "").replace(&folder, "FOLDER")),
        Err(problems) => Err(plain(problems.to_string())),
    }
}

fn kit() -> Kit {
    Kit::new()
        .var("A", "one")
        .var("EMPTY", "")
        .var("NESTED", "${A} $A")
        .var("HOME", "/home/me")
        .var("ODD(x)", "odd")
}

/// Reading a pipe would block for ever; a device has no end.
#[test]
fn a_value_is_read_from_a_regular_file_only() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    std::fs::write(folder.path().join("file"), "value\n").unwrap();
    std::os::unix::fs::symlink(folder.path().join("file"), folder.path().join("link")).unwrap();
    for name in ["pipe".to_owned(), "socket".to_owned(), ".".to_owned()]
        .map(|name| path(&name))
        .into_iter()
        .chain(["/dev/zero".to_owned(), "/dev/tty".to_owned()])
    {
        let why = arg(kit(), &format!("${{file:{name}}}")).unwrap_err();
        // Without a terminal there is no /dev/tty to open.
        let is_told = why.contains("is not a regular file; name one that is");
        assert!(is_told || (name == "/dev/tty" && why.contains("cannot be read")), "{why}");
    }
    for name in ["file", "link"] {
        assert_eq!(arg(kit(), &format!("${{file:{}}}", path(name))), Ok("value".to_owned()));
    }
}

#[test]
fn every_form_is_filled_in() {
    let kit = || kit().file("secret.txt", "s0\r\n").file("sub/other.txt", " x \n\n");
    for (text, value) in [
        ("${A}", "one"),
        ("x${A}${A}y", "xoneoney"),
        ("${env:A}", "one"),
        ("${env:ODD(x)}", "odd"),
        ("${A:-two}", "one"),
        ("${NO:-two}", "two"),
        ("${NO:-}", ""),
        ("${env:NO:-a:-b}", "a:-b"),
        ("${EMPTY}", ""),
        ("${EMPTY:-two}", "two"),
        ("${NESTED}", "${A} $A"),
        ("${userHome}/x", "/home/me/x"),
        ("${workspaceFolder}/x", "FOLDER/x"),
        ("${pathSeparator}${/}", "//"),
        ("${file:secret.txt}", "s0"),
        ("${file:./sub/other.txt}", " x "),
        ("$A $$A {A} $(A) $", "$A $$A {A} $(A) $"),
    ] {
        assert_eq!(arg(kit(), text).as_deref(), Ok(value), "{text}");
    }
}

#[test]
fn what_cannot_be_filled_in_is_a_problem() {
    let forms = "has a ${…} that cannot be filled in; there are ${VAR}, ${VAR:-default}, ${env:VAR}, ${file:PATH}, \
        ${input:ID}, ${userHome}, ${workspaceFolder}, ${workspaceFolderBasename} and ${pathSeparator}, and none \
        within another";
    for (text, problem) in [
        ("${NO}", "lacking: the variable NO is not set; set it, or write ${NO:-default}"),
        ("${env:NO}", "lacking: the variable NO is not set; set it, or write ${NO:-default}"),
        ("${A", "has a \"${\" without its \"}\""),
        (
            "${input:My Key.1}",
            "lacking: the variable INPUT_MY_KEY_1 is not set, which is the input \"My Key.1\"; set it",
        ),
        (
            "${file:none}",
            "lacking: FOLDER/none cannot be read: No such file or directory (os error 2)",
        ),
        ("${file:empty}", "lacking: FOLDER/empty is empty"),
        ("${}", forms),
        ("${1}", forms),
        ("${A%x}", forms),
        ("${env:}", forms),
        ("${command:hunter2}", forms),
        ("${NO:-${A}}", forms),
    ] {
        let kit = kit().file("empty", "\r\n");
        assert_eq!(arg(kit, text), Err(problem.to_owned()), "{text}");
    }
    assert_eq!(
        arg(Kit::new(), "${userHome}"),
        Err("lacking: the variable HOME is not set; set it".to_owned())
    );
}

#[test]
fn paths_are_seen_from_the_files_folder() {
    let cwd = |stated: &str| {
        let kit = Kit::new()
            .var("HOME", "/home/me")
            .file("seawall.toml", &format!("[servers.it]\ncommand = 'a'\ncwd = '{stated}'"));
        let Transport::Stdio { cwd, .. } = only(kit.good("seawall.toml")) else { panic!("stdio") };
        cwd.unwrap().display().to_string().replace(&kit.text_of_folder(), "FOLDER")
    };

    assert_eq!(cwd("sub"), "FOLDER/sub");
    assert_eq!(cwd("${workspaceFolder}"), "FOLDER");
    assert_eq!(cwd("/srv"), "/srv");
    assert_eq!(cwd("~/x"), "/home/me/x");
}

#[test]
fn a_text_cannot_grow_without_bound() {
    let kit = kit().file("big.txt", &"x".repeat(600 * 1024));

    assert_eq!(
        arg(kit, "${file:big.txt}${file:big.txt}"),
        Err("becomes longer than 1 MiB".to_owned())
    );
}

#[test]
fn what_one_server_lacks_costs_that_server_only_and_a_wrong_file_tells_it_too() {
    let lacking = "\
[servers.a]
command = 'a'
env = { TOKEN = '${env:NO}', OTHER = '${file:none}' }
[servers.b]
url = '${WRONG}'
headers = { Authorization = 'Bearer ${TWO_LINES}' }
[servers.c]
command = 'c'
";
    let kit = |text: &str| {
        Kit::new().var("WRONG", "no url").var("TWO_LINES", "a\nb").file("seawall.toml", text)
    };
    let servers = |text: &str| {
        let kit = kit(text);
        let told = kit
            .good("seawall.toml")
            .servers
            .iter()
            .map(|it| shown(&it.transport))
            .collect::<Vec<_>>();
        told.join("\n").replace(&kit.text_of_folder(), "FOLDER")
    };
    let expected = "\
incomplete the variable NO is not set (servers.a.env.TOKEN), \
FOLDER/none cannot be read: No such file or directory (os error 2) (servers.a.env.OTHER)
incomplete is not a valid URL (servers.b.url), \
has a value that no header can have: only printable ASCII, no line breaks (servers.b.headers.Authorization)
stdio c ";
    assert_eq!(servers(lacking), expected);

    // A wrong value in the file itself is a problem of the file; then everything is reported.
    let wrong = kit(&format!("{lacking}[servers.d]\nurl = 'no url'\n")).problems("seawall.toml");
    let lines: Vec<&str> = wrong.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        lines,
        ["seawall.toml:3", "seawall.toml:3", "seawall.toml:5", "seawall.toml:6", "seawall.toml:10"]
    );
}
