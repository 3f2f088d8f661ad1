//! One look at a server: a conversation is opened, its tools are listed, and it is closed again. No
//! tool is called.

use std::sync::Arc;

use super::handshake::HandshakeParams;
use super::{Connection, Server, UpstreamFailure, beginning};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::Era;
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Message, MessageKind, build, limits};
use crate::upstream::call::{ClientSink, NoClient};

/// What was seen.
pub struct ProbeResult {
    /// What the handshake agreed on.
    pub info: Option<ServerInfo>,
    /// The pages of its list of tools; none if it has no tools.
    pub pages: Vec<Message>,
}

/// Why nothing was seen.
#[derive(Debug)]
pub enum ProbeFailed {
    /// There was no conversation, or it ended.
    Failed(UpstreamFailure),
    /// It refused to list its tools: with this code and this text.
    Refused(i64, String),
}

impl Server {
    /// Opens a conversation and lists the tools, at most so many pages of them.
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

/// The pages of the list of tools, at most so many and within bounds of size; none of a server that
/// has no tools.
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
