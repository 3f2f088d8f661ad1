//! One look at a server: a conversation is opened, its tools are listed, and it is closed again. No tool is called.

use std::sync::Arc;

use super::handshake::Opening;
use super::{Failure, Link, Server, beginning};
use crate::protocol::edit::{Object, quoted};
use crate::protocol::names::Era;
use crate::protocol::server_info::Hello;
use crate::protocol::{Kind, Message, build, limits};
use crate::upstream::call::{Nowhere, Outlet};

/// What was seen.
pub struct Found {
    /// What the handshake agreed on.
    pub hello: Option<Hello>,
    /// The pages of its list of tools; none if it has no tools.
    pub pages: Vec<Message>,
}

/// Why nothing was seen.
#[derive(Debug)]
pub enum Missed {
    /// There was no conversation, or it ended.
    Failed(Failure),
    /// It refused to list its tools: with this code and this text.
    Refused(i64, String),
}

impl Server {
    /// Opens a conversation and lists the tools, at most so many pages of them.
    pub async fn look(&self, opening: &Opening, most: usize) -> Result<Found, Missed> {
        let nowhere: Arc<dyn Outlet> = Arc::new(Nowhere);
        let link = self.shake(opening, &nowhere).await.map_err(Missed::Failed)?;
        link.initialized().await;
        let pages = pages(&link, opening, most).await;
        link.close().await;
        Ok(Found { hello: link.hello().cloned(), pages: pages? })
    }
}

/// The pages of the list of tools, at most so many and within bounds of size; none of a server that has no tools.
pub async fn pages(link: &Arc<Link>, opening: &Opening, most: usize) -> Result<Vec<Message>, Missed> {
    let mut params = Object::default();
    if link.era() == Era::Modern {
        params.set("_meta", &opening.meta[..]);
    }
    let (mut pages, mut bytes) = (Vec::new(), 0);
    while pages.len() < most && bytes < limits::LIST_BYTES {
        let page = link.ask_for_all("tools/list", &params.json()).await.map_err(Missed::Failed)?;
        if page.kind() == Kind::Error {
            let code = page.field_json("code").and_then(|code| serde_json::from_slice(code).ok());
            let text = beginning(&page.field_text("message").unwrap_or_default());
            // A server may have no tools.
            let has_none = code == Some(build::METHOD_NOT_FOUND);
            return if has_none {
                Ok(pages)
            } else {
                Err(Missed::Refused(code.unwrap_or(build::INTERNAL_ERROR), text))
            };
        }
        if !holds_list(&page, "tools") {
            return Err(Missed::Refused(build::INTERNAL_ERROR, "its answer to tools/list is no list".to_owned()));
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
pub fn holds_list(answer: &Message, entries: &str) -> bool {
    answer.kind() == Kind::Result && answer.field_json(entries).is_some_and(|list| list.starts_with(b"["))
}
