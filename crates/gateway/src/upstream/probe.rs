//! Probes a server once: opens a connection, lists the tools and closes it again. Calls no tool.

use std::sync::Arc;

use super::handshake::HandshakeParams;
use super::{Connection, Server, UpstreamFailure, beginning};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::Era;
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Message, MessageKind, build, limits};
use crate::upstream::call::{ClientSink, NoClient};

/// The result of a probe.
pub struct ProbeResult {
    /// The server's answer to the handshake.
    pub info: Option<ServerInfo>,
    /// The pages of the tool list; empty if the server has no tools.
    pub pages: Vec<Message>,
}

/// Why a probe failed.
#[derive(Debug)]
pub enum ProbeFailed {
    /// The connection failed or ended.
    Failed(UpstreamFailure),
    /// The server refused to list its tools, with this code and text.
    Refused(i64, String),
}

impl Server {
    /// Opens a connection and lists at most `most` pages of tools.
    pub async fn look(
        &self,
        handshake: &HandshakeParams,
        most: usize,
    ) -> Result<ProbeResult, ProbeFailed> {
        let nowhere: Arc<dyn ClientSink> = Arc::new(NoClient);
        let connection = self.shake(handshake, &nowhere).await.map_err(ProbeFailed::Failed)?;
        connection.initialized().await;
        let pages = pages(&connection, handshake, most).await;
        connection.close().await;
        Ok(ProbeResult { info: connection.info().cloned(), pages: pages? })
    }
}

/// At most `most` pages of the tool list, within a bound of bytes; none from a server without
/// tools.
pub(crate) async fn pages(
    connection: &Arc<Connection>,
    handshake: &HandshakeParams,
    most: usize,
) -> Result<Vec<Message>, ProbeFailed> {
    let mut params = JsonObject::default();
    if connection.era() == Era::Modern {
        params.set("_meta", &handshake.meta[..]);
    }
    let (mut pages, mut bytes) = (Vec::new(), 0);
    while pages.len() < most && bytes < limits::LIST_BYTES {
        let page = connection
            .ask_for_all("tools/list", &params.json())
            .await
            .map_err(ProbeFailed::Failed)?;
        if page.kind() == MessageKind::Error {
            let code = page.field_json("code").and_then(|code| serde_json::from_slice(code).ok());
            let text = beginning(&page.field_text("message").unwrap_or_default());
            // A server may have no tools.
            let has_none = code == Some(build::METHOD_NOT_FOUND);
            return if has_none {
                Ok(pages)
            } else {
                Err(ProbeFailed::Refused(code.unwrap_or(build::INTERNAL_ERROR), text))
            };
        }
        if !holds_list(&page, "tools") {
            return Err(ProbeFailed::Refused(
                build::INTERNAL_ERROR,
                "its answer to tools/list is no list".to_owned(),
            ));
        }
        bytes += page.raw().len();
        let next = page.field_text("nextCursor").map(|cursor| quoted(&cursor));
        pages.push(page);
        match next {
            Some(cursor) => params.set("cursor", cursor),
            None => break,
        };
    }
    Ok(pages)
}

/// Whether an answer holds a list of `entries`.
pub(crate) fn holds_list(answer: &Message, entries: &str) -> bool {
    answer.kind() == MessageKind::Result
        && answer.field_json(entries).is_some_and(|list| list.starts_with(b"["))
}
