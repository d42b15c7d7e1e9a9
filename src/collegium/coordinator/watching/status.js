"use strict";
// The page asks for itself and takes over the parts that have changed: one template says how anything is shown.
const every = 3000;
const lost = document.getElementById("lost");
async function refresh() {
  try {
    const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = fresh.title;
    for (const part of document.querySelectorAll("[data-live]")) {
      const now = fresh.getElementById(part.id);
      if (now !== null && now.innerHTML !== part.innerHTML) part.replaceChildren(...now.childNodes);
    }
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
}
setInterval(() => { if (!document.hidden) refresh(); }, every);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
