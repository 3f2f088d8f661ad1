//! An MCP server on stdio that answers every request with the bytes of its params, as they came:
//! for showing that nothing changes on the way. `initialize` is answered as a legacy server would
//! that has nothing to list.

#![allow(clippy::print_stdout, reason = "stdout is the wire")]

use std::io::{BufRead, Write};

use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

const HELLO: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"experimental":{}},"serverInfo":{"name":"echo","version":"0"}}"#;

fn main() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Ok(Envelope { id: Some(id), method: Some(method), params }) =
            serde_json::from_str(&line)
        else {
            continue;
        };
        let answer = match (method.as_str(), params) {
            ("initialize", _) => HELLO,
            ("server/discover", _) => {
                println!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"not here"}}}}"#
                );
                continue;
            }
            (_, Some(params)) => params.get(),
            (_, None) => "null",
        };
        println!(r#"{{"result":{answer} , "x-unknown":[1.0e+2],"jsonrpc":"2.0","id":{id}}}"#);
        std::io::stdout().flush()?;
    }
    Ok(())
}
