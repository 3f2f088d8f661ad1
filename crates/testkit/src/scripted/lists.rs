//! The list of tools: as many pages as the arguments say, as large as they say, and not always with
//! an end.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::Server;

impl Server {
    pub(super) fn list(&self, params: &Value) -> Value {
        let served = self.pages_served.fetch_add(1, Ordering::Relaxed);
        let script = &self.script;
        let page: usize =
            params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let mut result = json!({"tools": tools(page, script.tools, script.tool_bytes)});
        if page + 1 < script.pages {
            result["nextCursor"] = (page + 1).to_string().into();
        } else if script.cursor_loop {
            result["nextCursor"] = "0".into();
        } else if script.cursor_null && served < 8 {
            result["nextCursor"] = Value::Null;
        }
        result
    }
}

fn tools(page: usize, count: usize, bytes: usize) -> Vec<Value> {
    let name = |number: usize| {
        if (page, number) == (0, 0) { "echo".to_owned() } else { format!("tool_{page}_{number}") }
    };
    let tool = |number| json!({"name": name(number), "description": "d".repeat(bytes), "inputSchema": {"type": "object"}});
    (0..count).map(tool).collect()
}
