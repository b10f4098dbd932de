/* Pages opened from disk may not start workers, which the search runs in: a hidden frame takes their place. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      this.frame.contentDocument.open();
      this.frame.contentDocument.write(`<!doctype html><script>
        window.postMessage = ((post) => (data) => parent === window ? post(data) : parent.postMessage(data, "*"))(window.postMessage);
        window.importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((resolve, reject) => {
          const script = document.createElement("script");
          script.src = url; script.onload = resolve; script.onerror = reject;
          document.body.append(script);
        })), Promise.resolve());
        <\/script><body><script src="${new URL(url, document.baseURI).href}"><\/script></body>`);
      this.frame.contentDocument.close();
    }
    postMessage(data) {
      const deliver = () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      if (this.frame.contentDocument.readyState === "complete") deliver();
      else this.frame.addEventListener("load", deliver, { once: true });
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
