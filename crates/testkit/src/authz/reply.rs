//! What a gRPC authorizer says.

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{
    CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::rpc::Status;
use serde_json::Value;
use tonic::Code;

use super::check::struct_of_json;

/// An answer, built up from [`Reply::allow`], [`Reply::deny`], [`Reply::code`] or [`Reply::error`].
#[derive(Clone, Debug)]
pub struct Reply(Result<CheckResponse, (Code, String)>);

impl Reply {
    /// `status.code` 0.
    pub fn allow() -> Self {
        let ok = HttpResponse::OkResponse(OkHttpResponse::default());
        Self::response(Code::Ok, "", Some(ok))
    }

    /// `status.code` 7 with this body.
    pub fn deny(body: &str) -> Self {
        Self::code(Code::PermissionDenied, body)
    }

    /// `status.code` 16 with this body.
    pub fn unauthenticated(body: &str) -> Self {
        Self::code(Code::Unauthenticated, body)
    }

    /// Any `status.code` in a whole answer, with the body of a denial, as the bridge tells of an
    /// outage with 14.
    pub fn code(code: Code, body: &str) -> Self {
        let denied = DeniedHttpResponse { body: body.to_owned(), ..DeniedHttpResponse::default() };
        Self::response(code, body, Some(HttpResponse::DeniedResponse(denied)))
    }

    /// The call itself fails with this gRPC status; there is no answer.
    pub fn error(code: Code, message: &str) -> Self {
        Self(Err((code, message.to_owned())))
    }

    /// Any answer at all.
    pub fn raw(response: CheckResponse) -> Self {
        Self(Ok(response))
    }

    /// Only the `status.code`: neither an allowed nor a denied response.
    #[must_use]
    pub fn bare(mut self) -> Self {
        if let Ok(response) = &mut self.0 {
            response.http_response = None;
        }
        self
    }

    /// The HTTP status of a denial.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        if let Some(HttpResponse::DeniedResponse(denied)) = self.http() {
            denied.status = Some(HttpStatus { code: status.into() });
        }
        self
    }

    /// Sets a header: of the request that is let through, or of the denial.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        self.with_header(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd)
    }

    /// Adds a header beside those of the same name.
    #[must_use]
    pub fn append(self, name: &str, value: &str) -> Self {
        self.with_header(name, value, HeaderAppendAction::AppendIfExistsOrAdd)
    }

    /// Takes a header from the request that is let through.
    #[must_use]
    pub fn remove(mut self, name: &str) -> Self {
        if let Some(HttpResponse::OkResponse(ok)) = self.http() {
            ok.headers_to_remove.push(name.to_owned());
        }
        self
    }

    /// A header for the client, in the response to the request that is let through.
    #[must_use]
    pub fn response_header(mut self, name: &str, value: &str) -> Self {
        if let Some(HttpResponse::OkResponse(ok)) = self.http() {
            ok.response_headers_to_add.push(option(
                name,
                value,
                HeaderAppendAction::OverwriteIfExistsOrAdd,
            ));
        }
        self
    }

    /// The dynamic metadata of the answer.
    #[must_use]
    pub fn metadata(mut self, metadata: &Value) -> Self {
        if let Ok(response) = &mut self.0 {
            response.dynamic_metadata = Some(struct_of_json(metadata));
        }
        self
    }

    fn with_header(mut self, name: &str, value: &str, action: HeaderAppendAction) -> Self {
        let header = option(name, value, action);
        match self.http() {
            Some(HttpResponse::OkResponse(ok)) => ok.headers.push(header),
            Some(HttpResponse::DeniedResponse(denied) | HttpResponse::ErrorResponse(denied)) => {
                denied.headers.push(header)
            }
            None => {}
        }
        self
    }

    fn response(code: Code, message: &str, http_response: Option<HttpResponse>) -> Self {
        let message = message.to_owned();
        let status = Status { code: code as i32, message, ..Status::default() };
        Self(Ok(CheckResponse { status: Some(status), dynamic_metadata: None, http_response }))
    }

    fn http(&mut self) -> Option<&mut HttpResponse> {
        self.0.as_mut().ok()?.http_response.as_mut()
    }

    /// As `tonic` sends it.
    pub(super) fn into_wire(self) -> Result<tonic::Response<CheckResponse>, tonic::Status> {
        match self.0 {
            Ok(response) => Ok(tonic::Response::new(response)),
            Err((code, message)) => Err(tonic::Status::new(code, message)),
        }
    }
}

fn option(name: &str, value: &str, action: HeaderAppendAction) -> HeaderValueOption {
    let (key, value) = (name.to_owned(), value.to_owned());
    let header = HeaderValue { key, value, ..HeaderValue::default() };
    HeaderValueOption {
        header: Some(header),
        append_action: action.into(),
        ..HeaderValueOption::default()
    }
}
