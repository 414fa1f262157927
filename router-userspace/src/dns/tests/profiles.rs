use super::*;
use std::sync::Arc;
pub fn snapshot(model: Model) -> router_common::decide::Snapshot {
    router_common::decide::Snapshot {
        model: Arc::new(model),
        atlas: Arc::new(router_common::decide::Atlas),
        health: Arc::default(),
    }
}
pub fn service() -> Service {
    super::service()
}
