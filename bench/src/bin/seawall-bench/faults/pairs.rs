//! Two servers behind one gateway, one of them in trouble from the start: F3 and F4.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seawall_demo::client::{ClientAnswer, DemoClient, ServerRoute};
use seawall_demo::faults::{FaultPlan, ListFault};
use seawall_demo::faulty::Faulty;
use seawall_demo::gateway::DemoGateway;
use seawall_demo::web::Web;
use seawall_demo::world::World;
use serde_json::json;
use tokio::time::Instant;

use super::arms::settings;

const LONG: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);

/// What was seen, a line each.
pub(crate) async fn play(folder: &Path) -> io::Result<Vec<String>> {
    let dead = FaultPlan { is_away: true, ..FaultPlan::default() };
    let hangs = FaultPlan { list: Some(ListFault::Hang), ..FaultPlan::default() };
    let (first, joined) = pair(&folder.join("f3"), &dead).await?;
    let f3 = format!(
        "F3, one of two servers dead at the start: the list of the other came after {}; the dead one came back and its tools \
         were there {}",
        shown(first),
        joined.map_or("never".to_owned(), |time| format!("after {}", shown(Some(time))))
    );
    let (first, joined) = pair(&folder.join("f4"), &hangs).await?;
    let f4 = format!(
        "F4, one of two servers hangs when it is asked for its list: the list of the other came after {}; once it answers, \
         its tools were there {}",
        shown(first),
        joined.map_or("never".to_owned(), |time| format!("after {}", shown(Some(time))))
    );
    Ok(vec![f3, f4])
}

fn shown(time: Option<Duration>) -> String {
    time.map_or("no answer".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
}

/// Until the first list with the tools of the good server, and until those of the other are in it,
/// once it is well.
async fn pair(
    folder: &Path,
    trouble: &FaultPlan,
) -> io::Result<(Option<Duration>, Option<Duration>)> {
    let world = |name: &str| {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).map(|()| Arc::new(World::new(&folder)))
    };
    let (good, bad) = (world("good")?, world("bad")?);
    bad.set(trouble)?;
    let good = Web::start(Faulty { world: good }).await?;
    let other = Web::start(Faulty { world: Arc::clone(&bad) }).await?;
    // So that it has closed its port.
    tokio::time::sleep(STEP * 5).await;
    let (good, other) =
        (ServerRoute::Web(good.url.clone()), (ServerRoute::Web(other.url.clone()), other));
    let servers = [("good", &good), ("bad", &other.0)];
    let gateway = DemoGateway::start(folder, &settings(""), &servers, true).await?;
    let client = DemoClient::new(ServerRoute::Web(gateway.all()));
    let first = until(&client, "good__read_note").await;
    bad.set(&FaultPlan::default())?;
    let joined = until(&client, "bad__read_note").await;
    gateway.stop().await;
    Ok((first, joined))
}

async fn until(client: &DemoClient, tool: &str) -> Option<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        if let ClientAnswer::Message(message) = client.ask("tools/list", json!({}), LONG).await
            && message["result"]["tools"]
                .as_array()
                .is_some_and(|tools| tools.iter().any(|it| it["name"] == tool))
        {
            return Some(begun.elapsed());
        }
        tokio::time::sleep(STEP).await;
    }
    None
}
