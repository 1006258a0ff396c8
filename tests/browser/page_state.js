/**
 * Runs before the scripts of a page under test and shows their progress in attributes of the root element, since the
 * page's Content-Security-Policy forbids a test to evaluate a condition again and again.
 *
 * data-test-loaded   custom elements are defined, those that load late if they are in view, and htmx has processed its
 *                    attributes
 * data-test-settled  fonts are loaded too, and for a moment no script has requested anything
 */
{
  const POLL_MS = 20;
  const QUIET_POLLS = 5;
  let openRequests = 0;
  let quietPolls = 0;

  const { fetch } = window;
  window.fetch = async (...request) => {
    openRequests += 1;
    try {
      return await fetch(...request);
    } finally {
      openRequests -= 1;
      quietPolls = 0;
    }
  };
  const { send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.send = function (...body) {
    openRequests += 1;
    this.addEventListener("loadend", () => {
      openRequests -= 1;
      quietPolls = 0;
    });
    send.apply(this, body);
  };

  // WHEN_VISIBLE of js/app.js.
  const LATE = ["api-docs", "json-view", "markdown-view", "time-chart"];
  const isInView = new WeakMap();
  const viewObserver = new IntersectionObserver((entries) => {
    for (const entry of entries) isInView.set(entry.target, entry.isIntersecting);
  });
  const isAwaited = (element) => {
    if (!LATE.includes(element.localName)) return true;
    if (!isInView.has(element)) viewObserver.observe(element);
    return isInView.get(element) ?? true;
  };

  const hasLoaded = () => {
    const first = document.querySelector("[hx-get], [hx-post]");
    const isProcessed = first === null || "htmx-internal-data" in first;
    const missing = [...document.querySelectorAll("body :not(:defined)")];
    return isProcessed && !missing.map(isAwaited).some(Boolean);
  };

  const poll = () => {
    const root = document.documentElement;
    if (hasLoaded()) root.setAttribute("data-test-loaded", "");
    const isQuiet =
      root.hasAttribute("data-test-loaded") &&
      document.fonts.status === "loaded" &&
      openRequests === 0;
    quietPolls = isQuiet ? quietPolls + 1 : 0;
    if (quietPolls >= QUIET_POLLS) root.setAttribute("data-test-settled", "");
    else setTimeout(poll, POLL_MS);
  };
  document.addEventListener("DOMContentLoaded", poll);
}
