// A page that is opened from a folder may start no worker, and the search is one: an iframe takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const tell = data => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      this.ready = new Promise(done => this.frame.addEventListener("load", done, { once: true }));
      inside.document.open();
      inside.__tell = tell;
      inside.document.write(`<body><script>
        postMessage = data => __tell(data);
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = Object.assign(document.createElement("script"), { src: url, onload: done, onerror: failed });
          document.body.append(script);
        })), Promise.resolve());
      <\/script><script src="${url}"><\/script>`);
      inside.document.close();
    }
    postMessage(data) {
      const { contentWindow } = this.frame;
      this.ready.then(() => contentWindow.dispatchEvent(new contentWindow.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
