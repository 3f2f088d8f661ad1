//! Decides what the seven tools take: the fields, their limits and defaults, for the schema and for the check alike.

use std::borrow::Cow;
use std::num::NonZeroU32;

use rmcp::schemars::{self, JsonSchema, Schema, SchemaGenerator};
use seawall::FailureSignals;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// JSON-RPC's code for wrong arguments: never retried, and no breaker counts it.
const INVALID_PARAMS: i64 = -32602;

/// Reads a tool's arguments, or says which of them is wrong.
pub(crate) fn read<A: DeserializeOwned>(arguments: &Value) -> Result<A, FailureSignals> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        FailureSignals::rpc(INVALID_PARAMS, format!("{}: {}", error.path(), error.inner()))
    })
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Repository {
    pub(crate) owner: String,
    pub(crate) repo: String,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ListIssues {
    #[serde(flatten)]
    pub(crate) repository: Repository,
    #[serde(default)]
    pub(crate) state: Filter,
    #[serde(default = "twenty")]
    pub(crate) limit: Limited<u32, 1, 100>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct GetIssue {
    #[serde(flatten)]
    pub(crate) repository: Repository,
    pub(crate) issue_number: NonZeroU32,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct CreateIssue {
    #[serde(flatten)]
    pub(crate) repository: Repository,
    pub(crate) title: Limited<String, 1, 256>,
    pub(crate) body: Option<String>,
    pub(crate) labels: Option<Vec<String>>,
    pub(crate) assignees: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct UpdateIssue {
    #[serde(flatten)]
    pub(crate) repository: Repository,
    pub(crate) issue_number: NonZeroU32,
    pub(crate) title: Option<Limited<String, 1, 256>>,
    pub(crate) body: Option<String>,
    pub(crate) state: Option<State>,
    pub(crate) labels: Option<Vec<String>>,
    pub(crate) assignees: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct SearchIssues {
    /// Words that must all occur. GitHub takes no more than 256 characters.
    pub(crate) query: Limited<String, 1, 256>,
    #[serde(default = "ten")]
    pub(crate) limit: Limited<u32, 1, 50>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ListPage {
    #[serde(flatten)]
    pub(crate) repository: Repository,
    #[serde(default)]
    pub(crate) state: Filter,
    #[serde(default = "first_page")]
    pub(crate) page: NonZeroU32,
    #[serde(default = "thirty")]
    pub(crate) per_page: Limited<u32, 1, 100>,
    #[serde(default)]
    pub(crate) sort: Sort,
    #[serde(default)]
    pub(crate) direction: Direction,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct LabelIssues {
    #[serde(flatten)]
    pub(crate) repository: Repository,
    pub(crate) issue_numbers: Limited<Vec<NonZeroU32>, 1, 25>,
    pub(crate) labels: Limited<Vec<String>, 1, 10>,
}

/// The state an issue gets.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum State {
    Open,
    Closed,
}

/// Which issues are listed.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Filter {
    #[default]
    Open,
    Closed,
    All,
}

/// By what they are sorted.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Sort {
    Created,
    #[default]
    Updated,
    Comments,
}

/// Which end comes first.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Direction {
    Asc,
    #[default]
    Desc,
}

fn first_page() -> NonZeroU32 {
    NonZeroU32::MIN
}

fn ten() -> Limited<u32, 1, 50> {
    Limited(10)
}

fn twenty() -> Limited<u32, 1, 100> {
    Limited(20)
}

fn thirty() -> Limited<u32, 1, 100> {
    Limited(30)
}

/// A value within limits: of a number, of a text's length, of a list's length.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Limited<T, const LOW: usize, const HIGH: usize>(pub(crate) T);

/// What can be limited, and how a schema says so.
trait Measure {
    const UNIT: &str;
    const KEYWORDS: [&str; 2];
    fn size(&self) -> usize;
}

impl Measure for u32 {
    const UNIT: &str = "";
    const KEYWORDS: [&str; 2] = ["minimum", "maximum"];

    fn size(&self) -> usize {
        usize::try_from(*self).unwrap_or(usize::MAX)
    }
}

impl Measure for String {
    const UNIT: &str = " characters";
    const KEYWORDS: [&str; 2] = ["minLength", "maxLength"];

    fn size(&self) -> usize {
        self.chars().count()
    }
}

impl<T> Measure for Vec<T> {
    const UNIT: &str = " items";
    const KEYWORDS: [&str; 2] = ["minItems", "maxItems"];

    fn size(&self) -> usize {
        self.len()
    }
}

impl<'de, T, const LOW: usize, const HIGH: usize> Deserialize<'de> for Limited<T, LOW, HIGH>
where
    T: Deserialize<'de> + Measure,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = T::deserialize(deserializer)?;
        let size = value.size();
        if (LOW..=HIGH).contains(&size) {
            return Ok(Self(value));
        }
        Err(D::Error::custom(format!("must be {LOW} to {HIGH}{unit}, not {size}", unit = T::UNIT)))
    }
}

impl<T: JsonSchema + Measure, const LOW: usize, const HIGH: usize> JsonSchema
    for Limited<T, LOW, HIGH>
{
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}From{LOW}To{HIGH}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        for (keyword, limit) in T::KEYWORDS.into_iter().zip([LOW, HIGH]) {
            schema.insert(keyword.to_owned(), limit.into());
        }
        schema
    }
}
