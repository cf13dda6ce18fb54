import Cutroom
import Foundation

func firstFilm(server: URL, idToken: String, clip: URL, film: URL) async throws {
    let support = FileManager.default.urls(for: .applicationSupportDirectory, in: .userDomainMask)[0]
    let store = try FileStore(folder: support.appendingPathComponent("cutroom"))
    let cutroom = Cutroom(baseURL: server, store: store)
    do {
        if try await cutroom.session() == nil { try await cutroom.signIn(.a, idToken: idToken) }
        let key = try await cutroom.assets.upload(file: clip) { print("uploaded", $0) }
        let config = RenderConfigV3(segments: [SegmentV3(order: 0, durationMs: 2000, sourceAssetKey: key)])
        let job = try await cutroom.jobs.render(config, slot: "draft 1")
        _ = try await cutroom.jobs.film(job.jobId, onState: { print($0.status, $0.progress) })
        try await cutroom.jobs.download(job.jobId, to: film)
    } catch let error as CutroomError {
        switch error.next {
        case .signIn: print("sign in again")
        case .again: print("try again in \(error.retryAfterSec ?? 10) s")
        default: print(error.localizedDescription, error.field ?? "")
        }
        throw error
    }
}
