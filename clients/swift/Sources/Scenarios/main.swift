// Runs one scenario of the table in test/clients/phones_test.go against a server. BASE and ID_TOKEN say where and who,
// STORE is a folder that outlives the process, and CLIP is a video of two seconds.

import Cutroom
import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

func env(_ name: String) -> String { ProcessInfo.processInfo.environment[name] ?? "" }

func check(_ holds: Bool, _ what: @autoclosure () -> String, line: UInt = #line) {
    if holds { return }
    print("line \(line): \(what())")
    exit(1)
}

func equal<T: Equatable>(_ got: T, _ want: T, line: UInt = #line) {
    check(got == want, "got \(got), want \(want)", line: line)
}

/// The error of a call that must fail.
@MainActor
func failure<T>(line: UInt = #line, _ call: @MainActor () async throws -> T) async -> any Error {
    do {
        let value = try await call()
        check(false, "succeeded: \(value)", line: line)
        exit(1)
    } catch {
        return error
    }
}

@MainActor
func refusal<T>(line: UInt = #line, _ call: @MainActor () async throws -> T) async -> CutroomError {
    let error = await failure(line: line, call)
    guard let error = error as? CutroomError else {
        check(false, "\(error) is no CutroomError", line: line)
        exit(1)
    }
    return error
}

final class Box<T>: @unchecked Sendable {
    private var values: [T] = []
    private let lock = NSLock()

    func add(_ value: T) {
        lock.lock()
        defer { lock.unlock() }
        values.append(value)
    }

    var all: [T] {
        lock.lock()
        defer { lock.unlock() }
        return values
    }
}

/// A network that first fails in a way that the scenario chooses, then works.
actor Net: Transport {
    enum Fault {
        /// This answer instead of the server's.
        case answer(Int, String, [String: String] = [:])
        /// The server acts, and its answer is lost.
        case lose
        /// The server acts, and the app is killed before it has the answer.
        case die
        /// The server acts, and its answer waits for `release`, or for its task to be cancelled.
        case hold
    }

    struct Request {
        let method: String
        let path: String
        let key: String?
        let replayed: Bool
    }

    private var faults: [(path: String, fault: Fault)] = []
    private var log: [Request] = []
    private var holds = false
    private let real = URLSessionTransport()

    func release() { holds = false }

    /// Returns when the server has acted on a request whose answer is held.
    func acted() async throws {
        while !holds { try await Task.sleep(nanoseconds: 10_000_000) }
    }

    func fail(_ path: String, _ fault: Fault) { faults.append((path, fault)) }
    func sent(_ path: String) -> [Request] { log.filter { $0.path.hasSuffix(path) } }
    func puts() -> Int { log.filter { $0.method == "PUT" }.count }

    func data(for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse) {
        try await meet(request) { try await self.real.data(for: request, sent: sent) }
    }

    func upload(_ file: URL, for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse) {
        try await meet(request) { try await self.real.upload(file, for: request, sent: sent) }
    }

    /// Sends a request, unless a fault takes its place.
    private func meet(
        _ request: URLRequest, _ send: @Sendable () async throws -> (Data, HTTPURLResponse)
    ) async throws -> (Data, HTTPURLResponse) {
        let path = request.url!.path
        let at = faults.firstIndex { path.hasSuffix($0.path) }
        let fault = at.map { faults.remove(at: $0).fault }
        if case .answer(let status, let body, let headers)? = fault {
            note(request, replayed: false)
            let head = HTTPURLResponse(url: request.url!, statusCode: status, httpVersion: "HTTP/1.1", headerFields: headers)!
            return (Data(body.utf8), head)
        }
        let (data, response) = try await send()
        note(request, replayed: response.value(forHTTPHeaderField: "Idempotent-Replayed") != nil)
        switch fault {
        case .lose?: throw URLError(.networkConnectionLost)
        case .die?:
            try Data((request.value(forHTTPHeaderField: "Idempotency-Key") ?? "").utf8)
                .write(to: URL(fileURLWithPath: env("STORE") + "/key"))
            kill(getpid(), SIGKILL)
        case .hold?:
            holds = true
            defer { holds = false }
            while holds { try await Task.sleep(nanoseconds: 10_000_000) }
        default: break
        }
        return (data, response)
    }

    func download(for request: URLRequest) async throws -> (URL, HTTPURLResponse) {
        note(request, replayed: false)
        return try await real.download(for: request)
    }

    private func note(_ request: URLRequest, replayed: Bool) {
        log.append(Request(
            method: request.httpMethod ?? "", path: request.url!.path,
            key: request.value(forHTTPHeaderField: "Idempotency-Key"), replayed: replayed))
    }
}

let base = URL(string: env("BASE"))!
let net = Net()
let waits = Box<Double>()
let ended = Box<SignedOut>()

func client(_ store: any Store, _ net: any Transport = net, ahead: TimeInterval = 0, timeoutSec: Double = 60) -> Cutroom {
    var options = Options()
    options.now = { Date().addingTimeInterval(ahead) }
    options.timeoutSec = timeoutSec
    options.onWait = { if let seconds = $0 { waits.add(seconds) } }
    options.onSignedOut = { ended.add($0) }
    return Cutroom(baseURL: base, store: store, transport: net, options: options)
}

let files = try FileStore(folder: URL(fileURLWithPath: env("STORE") + "/store"))
let cutroom = client(files)
let clip = URL(fileURLWithPath: env("CLIP"))

/// Signs in, unless an earlier process of this device has: the service limits sign-ins.
func signIn() async throws {
    if try await cutroom.session() == nil { try await cutroom.signIn(.a, idToken: env("ID_TOKEN")) }
}
func balance() async throws -> Int { try await cutroom.account().balance }

func film(_ key: String) -> RenderConfigV3 {
    RenderConfigV3(
        segments: [SegmentV3(order: 0, durationMs: 2000, trimEndMs: 1000, sourceAssetKey: key)], quality: "low")
}

let scenarios: [String: @MainActor () async throws -> Void] = [
    "a film although the answer of its submit is lost": {
        try await signIn()
        let shares = Box<Double>()
        let key = try await cutroom.assets.upload(file: clip) { shares.add($0) }
        equal(shares.all.last, 1)
        equal(try await cutroom.assets.upload(file: clip), key)
        equal(await net.puts(), 1)
        await net.fail("/render/v3", .lose)
        let job = try await cutroom.jobs.render(film(key), slot: "draft")
        let sent = await net.sent("/render/v3")
        equal(sent.count, 2)
        equal(sent[0].key, sent[1].key)
        check(sent[1].replayed, "the second answer is not that of the first submit")
        let states = Box<String>()
        let done = try await cutroom.jobs.film(job.jobId, onState: { states.add($0.status) })
        equal(states.all.last, "COMPLETED")
        equal(try await cutroom.jobs.films().jobs.map(\.jobId), [job.jobId])
        let file = URL(fileURLWithPath: env("STORE") + "/film.mp4")
        try await cutroom.jobs.download(job.jobId, to: file)
        try await cutroom.jobs.download(job.jobId, to: file)
        equal(try Data(contentsOf: file).count, done.sizeBytes)
        let poster = URL(fileURLWithPath: env("STORE") + "/poster.jpg")
        try await cutroom.jobs.poster(job.jobId, to: poster)
        equal(Array(try Data(contentsOf: poster).prefix(2)), [0xff, 0xd8])
        check(try await cutroom.jobs.unanswered(slot: "draft") == nil, "an answered submit was kept")
        try await cutroom.jobs.delete(job.jobId)
        equal(try await cutroom.jobs.films().jobs.count, 0)
        try await cutroom.deleteAccount()
        check(try await cutroom.session() == nil, "the session was kept")
    },
    "the first film of the README": {
        let file = URL(fileURLWithPath: env("STORE") + "/first.mp4")
        try await firstFilm(server: base, idToken: env("ID_TOKEN"), clip: clip, film: file)
        check(try Data(contentsOf: file).count > 1000, "no film")
    },
    "a busy server is asked again when it says": {
        try await signIn()
        await net.fail("/assets/upload-url", .answer(503, #"{"error":"unavailable"}"#, ["Retry-After": "1"]))
        let key = try await cutroom.assets.upload(file: clip)
        equal(waits.all, [1])
        await net.fail("/render/v3", .answer(429, #"{"error":"rate_limited"}"#, ["Retry-After": "2"]))
        _ = try await cutroom.jobs.render(film(key))
        equal(waits.all, [1, 2])
        // A submit that may have been accepted keeps its key: neither a 429 nor a page from a proxy is its answer.
        for (status, body) in [(429, #"{"error":"too_many_jobs"}"#), (200, "<html>"), (403, "<html>")] {
            await net.fail("/render/v3", .answer(status, body))
            _ = await refusal { try await cutroom.jobs.render(film(key), slot: "kept") }
        }
        _ = try await cutroom.jobs.render(film(key), slot: "kept")
        equal(Set(await net.sent("/render/v3").suffix(4).map(\.key)).count, 1)
        await net.fail("/render/v3", .answer(503, #"{"error":"paused"}"#, ["Retry-After": "1"]))
        let paused = await refusal { try await cutroom.jobs.render(film(key), slot: "other") }
        equal(paused.next, .again)
        equal(paused.retryAfterSec, 1)
        // Without a key a POST may have taken effect.
        await net.fail("/credits/admin-grant", .answer(502, ""))
        let once = await refusal { () -> Account in try await cutroom.call("POST", "/credits/admin-grant", body: ["x": 1]) }
        equal(once.status, 502)
        equal(await net.sent("/credits/admin-grant").count, 1)
        equal(waits.all, [1, 2])
    },
    "a session that the server ends": {
        try await signIn()
        let (first, second) = (MemoryStore(), MemoryStore())
        let session = try await cutroom.session()!
        for (store, code, reason) in [(first, "unauthorized", SignedOut.signedOut), (second, "account_deleted", .accountDeleted)] {
            store.write("cutroom.session", try JSONEncoder().encode(session))
            let device = client(store)
            _ = try await device.account()
            await net.fail("/assets/upload-url", .answer(401, #"{"error":"\#(code)"}"#))
            let refused = await refusal { try await device.assets.upload(file: clip) }
            equal(refused.status, 401)
            equal(refused.next, .signIn)
            equal(ended.all.last, reason)
            check(try await device.session() == nil, "the session was kept")
            check(store.read("cutroom.session") == nil, "the session was stored")
        }
        equal(ended.all.count, 2)
        // A submit that was refused because there was no session is sent again under its key.
        let key = try await cutroom.assets.upload(file: clip)
        await net.fail("/render/v3", .answer(401, #"{"error":"unauthorized"}"#))
        equal(await refusal { try await cutroom.jobs.render(film(key), slot: "draft") }.next, .signIn)
        try await signIn()
        check(try await cutroom.jobs.unanswered(slot: "draft") != nil, "the submit is lost")
        let sent = await net.sent("/render/v3")
        equal(sent.count, 2)
        equal(sent[0].key, sent[1].key)
    },
    "a wrong clock": {
        try await signIn()
        let day = 86_400.0
        var session = try await cutroom.session()!
        func device(ahead: TimeInterval) throws -> (Cutroom, Net) {
            let store = MemoryStore(), net = Net()
            store.write("cutroom.session", try JSONEncoder().encode(session))
            return (client(store, net, ahead: ahead), net)
        }
        // Six days ahead, the token seems nearly over until the server's clock is known.
        let (fast, fastNet) = try device(ahead: 6 * day)
        for _ in 0..<3 { _ = try await fast.account() }
        check(await fastNet.sent("/auth/refresh").count <= 1, "renewed again and again")
        // A token with a day left is renewed, once for three calls.
        session.expiresAt = Int((Date().timeIntervalSince1970 + day) * 1000)
        let (late, lateNet) = try device(ahead: 0)
        async let a = late.account()
        async let b = late.account()
        async let c = late.account()
        _ = try await (a, b, c)
        equal(await lateNet.sent("/auth/refresh").count, 1)
        check(Double(try await late.session()!.expiresAt) / 1000 > Date().timeIntervalSince1970 + 5 * day, "not renewed")
        // Six days behind, it seems fresh until the server's clock is known.
        let (slow, slowNet) = try device(ahead: -6 * day)
        _ = try await slow.account()
        equal(await slowNet.sent("/auth/refresh").count, 0)
        _ = try await slow.account()
        equal(await slowNet.sent("/auth/refresh").count, 1)
        // After a renewal has failed, not every request tries it again.
        let (deaf, deafNet) = try device(ahead: 0)
        for _ in 0..<2 { await deafNet.fail("/auth/refresh", .answer(503, "")) }
        for _ in 0..<3 { _ = try await deaf.account() }
        equal(await deafNet.sent("/auth/refresh").count, 1)
    },
    "killed between submit and answer": {
        try await signIn()
        let key = try await cutroom.assets.upload(file: clip)
        try Data("\(try await balance())".utf8).write(to: URL(fileURLWithPath: env("STORE") + "/balance"))
        await net.fail("/separate/v3", .die)
        _ = try await cutroom.jobs.separate(SeparationByReference(sourceAssetKey: key), slot: "voice")
        check(false, "it lives")
    },
    "started again after that": {
        let job = try await cutroom.jobs.unanswered(slot: "voice")
        let sent = await net.sent("/separate/v3")
        equal(sent.map(\.key), [try String(contentsOfFile: env("STORE") + "/key", encoding: .utf8)])
        check(sent[0].replayed, "it is another submit")
        check(try await cutroom.jobs.unanswered(slot: "voice") == nil, "an answered submit was kept")
        let stems = try await cutroom.jobs.stems(job!.jobId)
        check(!stems.stems.isEmpty, "no stems")
        equal(try await cutroom.jobs.separations().jobs.count, 1)
        let before = Int(try String(contentsOfFile: env("STORE") + "/balance", encoding: .utf8))!
        equal(try await balance(), before - stems.credits)
    },
    "a dropped connection in one part of an upload": {
        try await signIn()
        let large = URL(fileURLWithPath: env("LARGE"))
        let shares = Box<Double>()
        equal(try await cutroom.assets.upload(file: large) { shares.add($0) }, "assets/" + large.lastPathComponent)
        equal(shares.all.last, 1)
        check(shares.all.allSatisfy { $0 >= 0 && $0 <= 1 }, "\(shares.all)")
        check(await net.sent("/assets/upload-url").count > 1, "nothing failed")
        equal(await net.sent("/assets/complete").count, 1)
    },
    "killed in an upload": {
        try await signIn()
        // The first part that arrives ends the process.
        await net.fail(".wav", .die)
        _ = try await cutroom.assets.upload(file: URL(fileURLWithPath: env("LARGE")))
        check(false, "it lives")
    },
    "continued after that": {
        let large = URL(fileURLWithPath: env("LARGE"))
        let size = try FileManager.default.attributesOfItem(atPath: large.path)[.size] as! Int
        let slot: AssetUploadUrlResponse = try await cutroom.call(
            "POST", "/assets/upload-url",
            body: AssetUploadUrlRequest(
                sha256Hex: large.deletingPathExtension().lastPathComponent, sizeBytes: size, ext: "wav",
                contentType: "audio/wav", multipart: true))
        let waiting = slot.parts!.filter { !$0.done }.count
        check(waiting < slot.parts!.count, "no part has arrived")
        let shares = Box<Double>()
        equal(try await cutroom.assets.upload(file: large) { shares.add($0) }, "assets/" + large.lastPathComponent)
        // Parts that were under way when the process died may have arrived since.
        check(await net.puts() <= waiting, "parts were sent again")
        check(shares.all[0] > 0.1, "the progress begins at \(shares.all[0])")
    },
    "hashes of files of any length": {
        try await signIn()
        let folder = URL(fileURLWithPath: env("FILES"))
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        check(names.count > 5, "\(names)")
        for name in names {
            equal(try await cutroom.assets.upload(file: folder.appendingPathComponent(name)), "assets/" + name)
        }
        equal(try await cutroom.assets.list().assets.count, names.count + 1)
    },
    "a purchase is credited once": {
        try await signIn()
        let before = try await balance()
        let purchase = Purchase(
            platform: "platform_a", transactionId: env("ORDER"), receipt: env("RECEIPT"), productId: "credits.10")
        await net.fail("/credits/purchase", .answer(502, #"{"error":"receipt_verify_unavailable"}"#))
        await net.fail("/credits/purchase", .lose)
        let settled = try await cutroom.purchases.add(purchase)
        guard settled.count == 1, case .credited(purchase, _, let now) = settled[0] else {
            check(false, "\(settled)")
            return
        }
        equal(now, before + 10)
        equal(try await cutroom.purchases.waiting(), [])
        _ = try await cutroom.purchases.add(purchase)
        equal(try await balance(), before + 10)
        await net.fail("/credits/purchase", .answer(402, #"{"error":"receipt_invalid","detail":"cancelled"}"#))
        guard case .dropped(_, "cancelled")? = try await cutroom.purchases.add(purchase).first else {
            check(false, "not dropped")
            return
        }
        // A page that does not come from the service credits nothing and drops nothing.
        await net.fail("/credits/purchase", .answer(200, "<html>"))
        check(try await cutroom.purchases.add(purchase).first?.isFinal == false, "not kept")
        check(try await cutroom.purchases.present().first?.isFinal == true, "not credited")
        var never = purchase
        (never.transactionId, never.receipt) = ("GPA.0000-0000-0000-00000", "nonsense")
        guard case .kept? = try await cutroom.purchases.add(never).first else {
            check(false, "not kept")
            return
        }
        equal(try await cutroom.purchases.waiting(), [never])
    },
    "a submit and a purchase that the app cancels": {
        try await signIn()
        let recording = SeparationByReference(sourceAssetKey: try await cutroom.assets.upload(file: clip))
        let before = try await balance()
        await net.fail("/separate/v3", .hold)
        let submit = Task { try await cutroom.jobs.separate(recording, slot: "voice") }
        try await net.acted()
        submit.cancel()
        let error = await failure { try await submit.value }
        check(error is CancellationError, "\(error)")
        let job = try await cutroom.jobs.separate(recording, slot: "voice")
        let sent = await net.sent("/separate/v3")
        equal(sent.map(\.replayed), [false, true])
        equal(sent[0].key, sent[1].key)
        check(try await cutroom.jobs.unanswered(slot: "voice") == nil, "an answered submit was kept")
        let paid = try await balance()
        equal(paid, before - (try await cutroom.jobs.stems(job.jobId).credits))
        equal(try await cutroom.jobs.separations().jobs.count, 1)
        let purchase = Purchase(
            platform: "platform_a", transactionId: env("ORDER"), receipt: env("RECEIPT"), productId: "credits.10")
        await net.fail("/credits/purchase", .hold)
        let purchases = Task { try await cutroom.purchases.add(purchase) }
        try await net.acted()
        purchases.cancel()
        await net.release()
        check(try await purchases.value.first?.isFinal == true, "not credited")
        equal(try await cutroom.purchases.waiting(), [])
        _ = try await cutroom.purchases.add(purchase)
        equal(try await balance(), paid + 10)
    },
    "another user signs in while a submit is open": {
        try await signIn()
        let recording = SeparationByReference(sourceAssetKey: try await cutroom.assets.upload(file: clip))
        let before = try await balance()
        await net.fail("/separate/v3", .hold)
        let submit = Task { try await cutroom.jobs.separate(recording, slot: "voice") }
        try await net.acted()
        submit.cancel()
        _ = await failure { try await submit.value }
        try files.write("cutroom.firstUser", nil)  // as earlier versions left the store
        try await cutroom.signOut()
        check(try await cutroom.jobs.unanswered(slot: "voice") == nil, "nobody has an open submit")
        equal(await refusal { try await cutroom.jobs.separate(recording, slot: "voice") }.next, .signIn)
        try await cutroom.signIn(.a, idToken: env("OTHER_ID_TOKEN"))
        check(try await cutroom.jobs.unanswered(slot: "voice") == nil, "it is the other user's submit")
        equal(try await cutroom.assets.upload(file: clip), recording.sourceAssetKey)
        _ = try await cutroom.jobs.separate(recording, slot: "voice")
        try await cutroom.signOut()
        try await signIn()
        let job = try await cutroom.jobs.unanswered(slot: "voice")!
        let sent = await net.sent("/separate/v3")
        equal(sent.map(\.replayed), [false, false, true])
        equal(sent[2].key, sent[0].key)
        check(sent[1].key != sent[0].key, "it is the other user's key")
        check(try await cutroom.jobs.unanswered(slot: "voice") == nil, "an answered submit was kept")
        equal(try await balance(), before - (try await cutroom.jobs.stems(job.jobId).credits))
        equal(try await cutroom.jobs.separations().jobs.count, 1)
    },
    "errors have a next step": {
        try await signIn()
        let missing = await refusal {
            try await cutroom.jobs.render(film("assets/" + String(repeating: "0", count: 64) + ".mp4"))
        }
        equal(missing.status, 404)
        equal(missing.field, "segments[0].sourceAssetKey")
        equal(missing.next, .uploadAgain)
        check(missing.requestId != nil, "no request id")
        check(try await cutroom.jobs.unanswered(slot: "render") == nil, "a refused submit was kept")
        let misspelt = await refusal { () -> Account in
            try await cutroom.call("POST", "/assets/analysis", body: ["assetKey": "x", "pionts": "100"])
        }
        equal(misspelt.next, .fix)
        equal(await refusal { try await cutroom.assets.upload(file: URL(fileURLWithPath: "/a/clip.exe")) }.field, "ext")
        equal(await refusal { try await cutroom.jobs.film("../auth/account?x=") }.status, 404)
        await net.fail("/status", .answer(200, "<html>"))
        await net.fail("/status", .answer(200, """
            {"jobId":"rnd-1","status":"FAILED","outputKind":"video","quality":"low","createdAt":1,"progress":0,
            "error":"the clip is damaged","errorCode":"source_unreadable","field":"segments[0].sourceAssetKey"}
            """))
        let failed = await failure { try await cutroom.jobs.film("rnd-1") } as? JobFailed
        equal(failed?.code, "source_unreadable")
        equal(failed?.field, "segments[0].sourceAssetKey")
    },
    "the samples of docs/app": {
        let device = try makeClient(server: base, onSignedOut: { ended.add($0) })
        let before = try await start(device, idToken: { env("ID_TOKEN") }).balance
        let large = URL(fileURLWithPath: env("LARGE"))
        let request = try await device.assets.prepare(file: large).request!
        equal(try await net.upload(large, for: request, sent: nil).1.statusCode, 200)
        check(try await device.assets.prepare(file: large).request == nil, "the file has not arrived")
        let key = try await uploadInBackground(clip, with: device, session: .shared)
        let shares = Box<Double>()
        equal(try await upload(clip, with: device, bar: { shares.add($0) }), key)
        equal(shares.all.last, 1)
        equal(try await uploadInBackground(clip, with: device, session: .shared), key)
        let separation = try await stems(of: key, draft: "draft", with: device)
        equal(try await stems(of: key, draft: "draft", with: device).stems.map(\.stemId), separation.stems.map(\.stemId))
        let job = try await device.jobs.render(Scenarios.film(key), slot: "draft")
        let file = URL(fileURLWithPath: env("STORE") + "/sample.mp4")
        try await film(job.jobId, to: file, with: device, show: { _ in })
        check(try Data(contentsOf: file).count > 1000, "no film")
        try await register(Data([0xc0, 0xff, 0xee]), with: device)
        #if !canImport(StoreKit)
            let paid = try await device.account().balance
            equal(paid, before - separation.credits)
            // The receipt belongs to the first only.
            for (id, finished) in [(UInt64(env("ORDER_B"))!, [true]), (1, [])] {
                let bought = Transaction(id: id, productID: "credits.10")
                try await settle(VerificationResult(unsafePayloadValue: bought, jwsRepresentation: env("RECEIPT_B")), with: device)
                equal(bought.finished.all, finished)
            }
            equal(try await device.account().balance, paid + 10)
        #endif
    },
    "a server that does not answer": {
        let silent = Cutroom(
            baseURL: URL(string: env("SILENT"))!, store: MemoryStore(),
            options: { var o = Options(); o.timeoutSec = 1; return o }())
        let unsafe = await refusal { () -> Account in try await silent.call("POST", "/credits/admin-grant", body: ["x": 1]) }
        equal(unsafe.status, 0)
        equal(unsafe.next, .again)
        try await signIn()
        var session = try await cutroom.session()!
        session.expiresAt = Int((Date().timeIntervalSince1970 + 3600) * 1000)
        let store = MemoryStore()
        store.write("cutroom.session", try JSONEncoder().encode(session))
        let renewing = Cutroom(baseURL: URL(string: env("SILENT"))!, store: store)
        // Their time-out is a minute and more.
        Task {
            try await Task.sleep(nanoseconds: 45_000_000_000)
            check(false, "a cancelled call goes on")
        }
        for call in [
            { _ = try await silent.jobs.film("rnd-1") }, { _ = try await silent.assets.upload(file: clip) },
            { _ = try await renewing.account() },
        ] {
            let task = Task { try await call() }
            try await Task.sleep(nanoseconds: 300_000_000)
            task.cancel()
            let error = await failure { try await task.value }
            check(error is CancellationError, "\(error)")
        }
    },
]

guard CommandLine.arguments.count == 2, let scenario = scenarios[CommandLine.arguments[1]] else {
    print(scenarios.keys.sorted().joined(separator: "\n"))
    exit(2)
}
do {
    try await scenario()
} catch {
    print("\(error)")
    exit(1)
}
