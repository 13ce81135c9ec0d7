//! The control plane of the service, and the state of the connection to it.

use tokio::sync::watch;

use super::settings::XdsSettings;
use crate::rules::error::bounded;

/// The most bytes of a reason in the log.
const MOST_LOGGED: usize = 1 << 10;

/// The control plane from which the rules come, for the life of the process.
pub(in crate::serve) struct ControlPlane {
    pub(in crate::serve) settings: XdsSettings,
    status: watch::Sender<PlaneStatus>,
}

/// The state of the connection, and the updates so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct PlaneStatus {
    pub(in crate::serve) is_connected: bool,
    pub(in crate::serve) accepted: u64,
    pub(in crate::serve) refused: u64,
    /// The log has the reason why there is no connection.
    is_told: bool,
}

impl ControlPlane {
    pub(in crate::serve) fn new(settings: XdsSettings) -> ControlPlane {
        ControlPlane { settings, status: watch::Sender::default() }
    }

    pub(in crate::serve) fn status(&self) -> PlaneStatus {
        *self.status.borrow()
    }

    /// Returns once the status is as wanted.
    pub(in crate::serve) async fn until(&self, is_wanted: impl FnMut(&PlaneStatus) -> bool) {
        // The channel is open as long as this value is.
        let _ = self.status.subscribe().wait_for(is_wanted).await;
    }

    /// Counts an update, and whether its rules are in force.
    pub(super) fn updated(&self, is_accepted: bool) {
        self.status.send_modify(|now| {
            *(if is_accepted { &mut now.accepted } else { &mut now.refused }) += 1;
        });
    }

    pub(super) fn connected(&self) {
        tracing::info!("connected to the control plane {}", self.settings.server);
        self.status.send_modify(|now| (now.is_connected, now.is_told) = (true, false));
    }

    /// Notes the end of a connection, or a failure to connect. Of several in a row the first is in
    /// the log.
    pub(super) fn lost(&self, why: &str) {
        // The server may have written it.
        let why = bounded(why, MOST_LOGGED).escape_debug().to_string();
        let (server, PlaneStatus { is_told, accepted, .. }) = (&self.settings.server, self.status());
        let rules = if accepted > 0 { "the rules stay as they are" } else { "there are no rules yet" };
        if is_told {
            tracing::debug!("the control plane {server} is away: {why}");
        } else {
            tracing::warn!("the control plane {server} is away, and {rules}: {why}");
        }
        self.status.send_modify(|now| (now.is_connected, now.is_told) = (false, true));
    }

    /// Returns the metrics in the text format of Prometheus.
    pub(in crate::serve) fn prometheus(&self) -> String {
        let PlaneStatus { is_connected, accepted, refused, .. } = self.status();
        let (gauge, total) = ("tollgate_serve_xds_connected", "tollgate_serve_xds_updates_total");
        format!(
            "# TYPE {gauge} gauge\n{gauge} {}\n# TYPE {total} counter\n\
             {total}{{outcome=\"accepted\"}} {accepted}\n{total}{{outcome=\"refused\"}} {refused}\n",
            u8::from(is_connected)
        )
    }
}
