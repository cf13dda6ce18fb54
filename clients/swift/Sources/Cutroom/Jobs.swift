import Foundation

/// Renders and separations: submitted under a key that is kept until the answer arrives, and followed to their end.
public final class Jobs: Sendable {
    public struct Submitted: Sendable, Equatable {
        public let jobId: String
        /// Whether an earlier request created the job.
        public let reused: Bool
    }

    /// A submit that has no answer yet. The text of its body is kept: the server compares it.
    private struct Open: Codable, Sendable {
        let path: String
        let key: String
        let json: Data
    }

    /// Where the open submit of a user's slot is kept.
    private struct Place: Sendable {
        let user: String
        let key: String
    }

    private let api: API

    init(_ api: API) { self.api = api }

    /// Submits a render. `slot` names the draft: see `separate`.
    public func render(_ config: RenderConfigV3, slot: String = "render") async throws -> Submitted {
        try await submit("/render/v3", encode(config), slot)
    }

    /// Submits a separation of an uploaded file. The submit is kept in the store under `slot` until there is an answer.
    /// A call with the same slot and body, even after a crash of the app, is the same submit: it is charged once. Each
    /// user has separate slots.
    public func separate(_ body: SeparationByReference, slot: String = "separate") async throws -> Submitted {
        try await submit("/separate/v3", encode(body), slot)
    }

    /// Sends a submit of the signed-in user that got no answer in an earlier run of the app. Nil if there is none in
    /// this slot.
    public func unanswered(slot: String) async throws -> Submitted? {
        guard let place = try await place(slot), let open = try api.store.load(Open.self, place.key) else { return nil }
        return try await resume(open, place)
    }

    /// Follows a render until it is COMPLETED. `onState` is called with every state that differs from the last,
    /// `onReachable` with whether the server could be reached. Throws `JobFailed` if the render fails.
    public func film(
        _ jobId: String, onState: @Sendable (RenderStatus) -> Void = { _ in }, onReachable: @Sendable (Bool) -> Void = { _ in }
    ) async throws -> RenderCompleted {
        let path = try "/render/\(name(jobId))/status"
        return try await follow(jobId, path, final: ["COMPLETED"], { onState(try $0.decoded()) }, onReachable).decoded()
    }

    /// Follows a separation until it is READY. Throws `JobFailed` if it fails, and a `CutroomError` if its stems are gone.
    public func stems(
        _ jobId: String, onState: @Sendable (SeparationStatus) -> Void = { _ in },
        onReachable: @Sendable (Bool) -> Void = { _ in }
    ) async throws -> SeparationReady {
        let answer = try await follow(
            jobId, "/separate/\(name(jobId))", final: ["READY", "DISPOSED"], { onState(try $0.decoded()) }, onReachable)
        if try answer.decoded(State.self).status == "DISPOSED" {
            throw CutroomError(status: 404, body: ErrorBody(error: "invalid_stem_url"))
        }
        return try answer.decoded()
    }

    /// Downloads a film that is COMPLETED into a file, which it replaces.
    public func download(_ jobId: String, to file: URL) async throws {
        try await save("/render/\(name(jobId))/download", file)
    }

    /// Downloads a picture of a film that is COMPLETED.
    public func poster(_ jobId: String, to file: URL) async throws {
        try await save("/render/\(name(jobId))/poster", file)
    }

    /// Stops a job in any state and erases its files. It is unknown afterwards.
    public func delete(_ jobId: String) async throws {
        let path = try (jobId.hasPrefix("sep-") ? "/separate/" : "/render/") + name(jobId)
        _ = try await api.send(Call("DELETE", path))
    }

    /// The user's films, the newest first. `cursor` is the `nextCursor` of the page before.
    public func films(limit: Int = 20, cursor: String? = nil) async throws -> RenderHistory {
        try await api.send(Call("GET", "/render", query: page(limit, cursor))).decoded()
    }

    /// The user's separations, the newest first.
    public func separations(limit: Int = 20, cursor: String? = nil) async throws -> SeparationHistory {
        try await api.send(Call("GET", "/separate", query: page(limit, cursor))).decoded()
    }

    /// The place of the signed-in user's slot. Earlier versions had one for all users: it belongs to the first user, so
    /// that their submits are still found.
    private func place(_ slot: String) async throws -> Place? {
        guard let user = try await api.sessions.get()?.user.sub else { return nil }
        let first = try api.store.load(String.self, Sessions.firstUser) ?? user
        return Place(user: user, key: user == first ? "cutroom.submit.\(slot)" : "cutroom.open.\(user).\(slot)")
    }

    private func submit(_ path: String, _ json: Data, _ slot: String) async throws -> Submitted {
        guard let place = try await place(slot) else { throw CutroomError.signedOut }
        let before = try api.store.load(Open.self, place.key)
        if let before, before.path == path && before.json == json { return try await resume(before, place) }
        let open = Open(path: path, key: UUID().uuidString.lowercased(), json: json)
        try api.store.save(place.key, open)
        return try await resume(open, place)
    }

    private func resume(_ open: Open, _ place: Place) async throws -> Submitted {
        struct Body: Decodable {
            let jobId: String
            let reused: Bool?
        }
        let answer = try await api.exchange(
            Call("POST", open.path, headers: ["Idempotency-Key": open.key], json: open.json, user: place.user))
        guard answer.isSuccess else {
            let error = answer.error
            // A refusal by the service is an answer. Without one, the same submit must be sent again: an earlier try
            // may have been accepted, and neither a 401 nor a 429 nor a proxy's page rules that out.
            if (400..<500).contains(error.status), ![401, 408, 429].contains(error.status), !error.code.isEmpty {
                try forget(open, place)
            }
            throw error
        }
        let body = try answer.decoded(Body.self)
        try forget(open, place)
        return Submitted(jobId: body.jobId, reused: body.reused ?? false)
    }

    /// Removes an answered submit, unless another one has taken its slot.
    private func forget(_ open: Open, _ place: Place) throws {
        guard try api.store.load(Open.self, place.key)?.key == open.key else { return }
        try api.store.write(place.key, nil)
    }

    private struct State: Decodable {
        let status: String
        let error: String?
        let errorCode: String?
        let field: String?
    }

    /// Asks at once, then again and again: each answer comes as soon as the state differs from the last.
    private func follow(
        _ jobId: String, _ path: String, final: Set<String>, _ onState: (Answer) throws -> Void, _ onReachable: (Bool) -> Void
    ) async throws -> Answer {
        var tag: String?
        while true {
            let headers = tag.map { ["Prefer": "wait=\(Contract.waitSec)", "If-None-Match": $0] } ?? [:]
            let answer = try await reach(Call("GET", path, headers: headers))
            onReachable(answer != nil)
            guard let answer else {
                try await pause(Double(Contract.pollSec))
                continue
            }
            if answer.status != 304 {
                guard answer.isSuccess else { throw answer.error }
                let state = try answer.decoded(State.self)
                try onState(answer)
                if final.contains(state.status) { return answer }
                if state.status == "FAILED" {
                    throw JobFailed(
                        jobId: jobId, code: state.errorCode ?? JobErrorCode.`internal`, sentence: state.error ?? "the job failed",
                        field: state.field)
                }
            }
            let waited = answer.header("Preference-Applied") != nil || (tag == nil && answer.header("ETag") != nil)
            tag = answer.header("ETag") ?? tag
            if !waited { try await pause(Double(Contract.pollSec)) }
        }
    }

    /// An answer about the job. Nil if the server does not give one at the moment.
    private func reach(_ call: Call) async throws -> Answer? {
        do {
            let answer = try await api.exchange(call)
            if answer.isSuccess { _ = try answer.decoded(State.self) }
            return answer.status >= 500 || answer.status == 429 ? nil : answer
        } catch let error as CutroomError where error.status == 0 {
            return nil
        }
    }

    private func save(_ path: String, _ file: URL) async throws {
        guard case .file(let arrived) = try await api.send(Call("GET", path), toFile: true).body else { return }
        defer { try? FileManager.default.removeItem(at: arrived) }
        if FileManager.default.fileExists(atPath: file.path) { try FileManager.default.removeItem(at: file) }
        try FileManager.default.moveItem(at: arrived, to: file)
    }
}

/// The id of a job as a part of a path. It may come from a push or a link, so it must not lead to another path.
private func name(_ jobId: String) throws -> String {
    guard !jobId.isEmpty, jobId.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-") }) else {
        throw CutroomError(status: 404, body: ErrorBody(error: "unknown job"))
    }
    return jobId
}

/// The query of a page of a list.
func page(_ limit: Int, _ cursor: String?) -> [String: String] {
    var query = ["limit": String(limit)]
    query["cursor"] = cursor
    return query
}
