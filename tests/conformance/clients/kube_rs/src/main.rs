//! A short life of an operator with kube-rs: dynamic widgets, a watch, server-side apply, a controller and a Lease.
//! It prints what it saw, one JSON line per step, as the other lives do.

use std::{
    convert::Infallible,
    env,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::{
    api::coordination::v1::Lease,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
        WatchEvent, WatchParams,
    },
    runtime::{
        Controller,
        controller::Action,
        wait::{await_condition, conditions},
        watcher,
    },
};
use serde_json::{Value, json};

type Life = Result<(), Box<dyn Error>>;
type Widgets = Api<DynamicObject>;

const SELECTOR: &str = "app=shop";

#[tokio::main]
async fn main() -> Life {
    tokio::time::timeout(Duration::from_secs(120), live()).await?
}

async fn live() -> Life {
    let client = Client::try_default().await?;
    let (namespace, name) = (env::var("CONFORMANCE_NAMESPACE")?, env::var("CONFORMANCE_CLIENT")?);
    let group = format!("{name}.conformance.example");
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let widgets: Widgets = Api::namespaced_with(client.clone(), &namespace, &kind);
    let leases: Api<Lease> = Api::namespaced(client, &namespace);

    let definition: CustomResourceDefinition = serde_json::from_str(&env::var("CONFORMANCE_DEFINITION")?)?;
    definitions.create(&PostParams::default(), &definition).await?;
    await_condition(definitions.clone(), &definition.name_any(), conditions::is_crd_established()).await?;
    see("established", json!({}));
    until_served(&widgets).await?;
    write(&widgets, &kind).await?;
    apply(&widgets, &kind).await?;
    inform(&widgets, &kind).await?;
    lead(&leases, &format!("{name}-leader")).await?;
    definitions.delete(&definition.name_any(), &DeleteParams::default()).await?;
    see("done", json!({}));
    Ok(())
}

/// Waits for the cache of a new kind; until it is there, the real server answers 429.
async fn until_served(widgets: &Widgets) -> Life {
    loop {
        match widgets.list(&ListParams::default()).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn write(widgets: &Widgets, kind: &ApiResource) -> Life {
    let post = PostParams::default();
    see_object("created", &widgets.create(&post, &widget(kind, "a", 1)).await?);
    see_refusal("created again", widgets.create(&post, &widget(kind, "a", 1)).await);
    see_refusal("invalid", widgets.create(&post, &widget(kind, "b", 0)).await);
    let stale = widgets.get("a").await?;
    let patch = PatchParams::default();
    let size = Patch::Merge(json!({"spec": {"size": 2}}));
    see_object("patched", &widgets.patch("a", &patch, &size).await?);
    see_refusal("stale", widgets.replace("a", &post, &stale).await);
    let ready = Patch::Merge(json!({"status": {"ready": true}, "spec": {"size": 9}}));
    see_object("status", &widgets.patch_status("a", &patch, &ready).await?);
    widgets.create(&post, &widget(kind, "b", 3)).await?;
    let selected = ListParams::default().labels(SELECTOR);
    let listed = widgets.list(&selected).await?;
    see("listed", json!({"names": names(&listed.items)}));

    let (mut paged, mut pages, mut page) = (vec![], 0, ListParams::default().limit(1));
    loop {
        let found = widgets.list(&page).await?;
        paged.extend(names(&found.items));
        pages += 1;
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    see("paged", json!({"names": paged, "pages": pages}));

    widgets.delete("b", &DeleteParams::default()).await?;
    widgets.create(&post, &widget(kind, "c", 4)).await?;
    widgets.delete_collection(&DeleteParams::default(), &selected).await?;
    let version = listed.metadata.resource_version.unwrap_or_default();
    let stream = widgets.watch(&WatchParams::default().timeout(60), &version).await?;
    pin_mut!(stream);
    let mut events = vec![];
    while events.len() < 4 {
        match stream.try_next().await?.ok_or("the watch ended early")? {
            WatchEvent::Added(live) => events.push(format!("ADDED {}", live.name_any())),
            WatchEvent::Modified(live) => events.push(format!("MODIFIED {}", live.name_any())),
            WatchEvent::Deleted(live) => events.push(format!("DELETED {}", live.name_any())),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(format!("{status:?}").into()),
        }
    }
    events.sort();
    see("watched", json!({"events": events}));
    see_refusal("gone", widgets.get("a").await);
    Ok(())
}

async fn apply(widgets: &Widgets, kind: &ApiResource) -> Life {
    let (first, second) = (PatchParams::apply("first"), PatchParams::apply("second"));
    let size = |size| Patch::Apply(widget(kind, "d", size));
    see_object("applied", &widgets.patch("d", &first, &size(1)).await?);
    see_refusal("applied by another", widgets.patch("d", &second, &size(2)).await);
    see_object("applied by force", &widgets.patch("d", &second.clone().force(), &size(2)).await?);
    let mut live = widgets.patch("d", &second.force(), &size(2)).await?;
    live.data["status"] = json!({"ready": true});
    see_object("updated status", &widgets.replace_status("d", &PostParams::default(), &live).await?);
    widgets.delete("d", &DeleteParams::default()).await?;
    Ok(())
}

/// Follows one widget with a controller that asks for it again: a reconcile of what did not change.
async fn inform(widgets: &Widgets, kind: &ApiResource) -> Life {
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let created = widgets.create(&PostParams::default(), &widget(kind, "e", 1)).await?;
    let config = watcher::Config::default().labels(SELECTOR);
    let controller = Controller::new_with(widgets.clone(), config, kind.clone());
    let store = controller.store();
    let running = tokio::spawn(
        controller
            .run(reconcile, |_, _: &Infallible, _| Action::await_change(), seen.clone())
            .for_each(|_| async {}),
    );
    let until = async |wanted: &str| {
        while !seen.lock().unwrap().iter().any(|(event, _)| event == wanted) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until("resynced e 1").await;
    widgets.patch("e", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 2}}))).await?;
    until("resynced e 2").await;
    widgets.delete("e", &DeleteParams::default()).await?;
    await_condition(widgets.clone(), "e", conditions::is_deleted(&created.uid().unwrap_or_default())).await?;
    while !store.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.abort();
    let mut events: Vec<String> = seen.lock().unwrap().iter().map(|(event, _)| event.clone()).collect();
    events.push("deleted e 2".into());
    see("informed", json!({"events": events, "left": store.len()}));
    Ok(())
}

async fn reconcile(live: Arc<DynamicObject>, seen: Arc<Mutex<Vec<(String, String)>>>) -> Result<Action, Infallible> {
    let version = live.resource_version().unwrap_or_default();
    let mut seen = seen.lock().unwrap();
    let what = match seen.last() {
        None => "added",
        Some((_, last)) if *last == version => "resynced",
        Some(_) => "updated",
    };
    let event = format!("{what} {} {}", live.name_any(), live.data["spec"]["size"]);
    if !seen.iter().any(|(known, _)| *known == event) {
        seen.push((event, version));
    }
    Ok(Action::requeue(Duration::from_millis(200)))
}

/// Lets a first candidate lead and step down, and a second one follow.
async fn lead(leases: &Api<Lease>, name: &str) -> Life {
    let post = PostParams::default();
    let first: Lease = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": "first", "leaseDurationSeconds": 60, "leaseTransitions": 0},
    }))?;
    let mut held = leases.create(&post, &first).await?;
    see_leader(&held);
    held.spec.get_or_insert_default().holder_identity = Some(String::new());
    let mut free = leases.replace(name, &post, &held).await?;
    let spec = free.spec.get_or_insert_default();
    (spec.holder_identity, spec.lease_transitions) = (Some("second".into()), Some(1));
    see_leader(&leases.replace(name, &post, &free).await?);
    see_refusal("lost the race", leases.replace(name, &post, &free).await);
    leases.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

fn widget(kind: &ApiResource, name: &str, size: u32) -> DynamicObject {
    let mut made = DynamicObject::new(name, kind).data(json!({"spec": {"size": size}}));
    made.labels_mut().insert("app".into(), "shop".into());
    made
}

fn names(rows: &[DynamicObject]) -> Vec<String> {
    rows.iter().map(ResourceExt::name_any).collect()
}

fn see(step: &str, mut facts: Value) {
    facts["step"] = step.into();
    println!("{facts}");
}

fn see_object(step: &str, live: &DynamicObject) {
    let mut appliers: Vec<String> = live
        .managed_fields()
        .iter()
        .filter(|row| row.operation.as_deref() == Some("Apply"))
        .map(|row| format!("{}/Apply", row.manager.as_deref().unwrap_or_default()))
        .collect();
    appliers.sort();
    appliers.dedup();
    let (spec, status) = (&live.data["spec"], live.data.get("status"));
    see(step, json!({
        "spec": spec, "status": status, "generation": live.metadata.generation, "appliers": appliers,
    }));
}

fn see_leader(held: &Lease) {
    let spec = held.spec.clone().unwrap_or_default();
    see("leads", json!({"holder": spec.holder_identity, "transitions": spec.lease_transitions}));
}

fn see_refusal<T>(step: &str, answer: kube::Result<T>) {
    match answer {
        Ok(_) => see(step, json!({"code": 200})),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let mut fields: Vec<String> = causes.map(|cause| cause.field.clone()).collect();
            fields.sort();
            fields.dedup();
            see(step, json!({"code": status.code, "reason": status.reason, "fields": fields}));
        }
        Err(error) => see(step, json!({"error": error.to_string()})),
    }
}
