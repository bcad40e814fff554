// Requests to the REST API with the user's token, which is stored for this browser tab only.

import { announce } from "./header.js";
import { make } from "./dom.js";

const KEY = "anabranch.token";

/** Raised for an answer 401 or 403. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Raised for a refused request; has the problem document (RFC 9457) of the answer. */
export class Problem extends Error {
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

let who = null;
/** Whether the service has refused the token: no further requests are sent until the user signs in. */
let locked = false;

function send(path, { headers, ...options } = {}) {
  const token = sessionStorage.getItem(KEY);
  return fetch(path, {
    ...options,
    headers: { accept: "application/json", ...headers, ...(token && { authorization: `Bearer ${token}` }) },
  });
}

async function problemOf(response) {
  const problem = await response.json().catch(() => ({}));
  return problem.detail ?? `the service answered ${response.status}`;
}

/** Send a request; returns the answer, or throws if the service refuses it. */
export async function ask(path, options) {
  await started;
  if (locked) throw new Refused(401, "this service requires a token");
  const response = await send(path, options);
  if (response.status === 401) {
    lock(await problemOf(response));
    throw new Refused(401, "this service requires a token");
  }
  if (response.status === 403) throw new Refused(403, await problemOf(response));
  return response;
}

/** Request JSON; null for the status 404. */
export async function read(path) {
  const response = await ask(path);
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

/** Send `body` (if any) as JSON; returns the answer's JSON, or throws the problem. */
export async function submit(path, method, body, headers = {}) {
  const json = body === undefined ? {} : { body: JSON.stringify(body) };
  const response = await ask(path, { method, headers: { "content-type": "application/json", ...headers }, ...json });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem({ detail: `the service answered ${response.status}`, ...answer });
  return answer;
}

/** Request the newest `limit` epochs (from a cursor on), without the names of unchanged queries. */
export function readEpochs(limit, cursor = "") {
  return read(`/v1/epochs?detail=summary&limit=${limit}${cursor}`);
}

/** Request summaries of all queries, or of some: `search` has parameters of `GET /v1/queries`, such as `&stream=a`. */
export async function readQueries(search = "") {
  const items = [];
  let cursor = "";
  do {
    const page = await read(`/v1/queries?detail=summary&limit=500${search}${cursor}`);
    items.push(...page.items);
    cursor = page.next_cursor === null ? null : `&cursor=${page.next_cursor}`;
  } while (cursor !== null);
  return items;
}

/** Request the caller's role, and show the page's elements for it. */
async function identify() {
  const response = await send("/v1/whoami").catch(() => null);
  if (response === null) return;
  if (response.ok) {
    who = await response.json();
    locked = false;
    show();
  } else {
    lock(sessionStorage.getItem(KEY) ? await problemOf(response) : "");
  }
}

function lock(message) {
  sessionStorage.removeItem(KEY);
  who = null;
  locked = true;
  show(message);
}

/** Show only elements for the caller's role. */
function offer() {
  for (const part of document.querySelectorAll("[data-roles]")) {
    part.hidden = !who || !part.dataset.roles.split(" ").includes(who.role);
  }
}

const place = make("div", { className: "who", id: "who", hidden: true });

function show(message = "") {
  offer();
  place.hidden = !locked && !who?.token;
  if (who?.token) {
    const leave = make("button", { type: "button", className: "quiet", text: "Sign out" });
    leave.addEventListener("click", () => {
      sessionStorage.removeItem(KEY);
      location.reload();
    });
    place.replaceChildren(make("span", { className: "muted", text: `${who.name} · ${who.role}` }), leave);
    return;
  }
  if (!locked) return;
  const field = make("input", { type: "password", placeholder: "anb_…", autocomplete: "off", required: true, "aria-label": "Token" });
  const form = make("form", {}, field, make("button", { type: "submit", className: "chip", text: "Sign in" }));
  if (message) form.append(make("span", { className: "refusal", role: "alert", text: message }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, field.value.trim());
    await identify();
    if (!locked) location.reload();
  });
  place.replaceChildren(form);
}

document.querySelector("header.top").append(place);
/** Other requests wait for this one, so that a page without a token causes a single failed request. */
const started = identify();
announce(read);
