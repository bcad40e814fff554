// Polling: paused while the page is hidden, and never faster than the service can answer.

/** Least ratio of the time between two requests to a request's duration. */
const SHARE = 5;

/** Call `work` now and every `every` milliseconds while the page is visible. */
export function poll(work, every) {
  let timer = null;
  let running = false;
  const turn = async () => {
    clearTimeout(timer);
    if (running || document.hidden) return;
    running = true;
    const started = performance.now();
    try {
      await work();
    } finally {
      running = false;
      timer = setTimeout(turn, Math.max(every, SHARE * (performance.now() - started)));
    }
  };
  document.addEventListener("visibilitychange", turn);
  turn();
}
